"""`verify`: whether a saved model is the one to which the chain of its swarm's rounds leads; offline.

Each link is checked by the electorate of the state before it, from the state of round 0 on, which the
manifest names or draws. The arithmetic is not checked: those who have signed a link had done it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.errors import VerificationError
from dupt_swarm.learning.importing.files import BYTES_MAX, find_file, read_bytes, read_json
from dupt_swarm.learning.importing.hugging_face import (
    CONFIG,
    CONFIG_BYTES_MAX,
    read_config,
    read_hugging_face,
)
from dupt_swarm.learning.importing.weights import SINGLE
from dupt_swarm.learning.objectives import build_outline, first_model
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.layout import layout_of
from dupt_swarm.models.exporting import STATE_INDEX_FILE
from dupt_swarm.models.saved_model import MANIFEST_FILE, TOKENIZER_FILE, SavedModel
from dupt_swarm.replica.blob import INDEX_BYTES_MAX, Index, chunk_hashes
from dupt_swarm.replica.chain import Chain, counted_in
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.ledger import Bookkeeping, Entry
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState, check_header

SOURCE = "give a folder that `dupt-model pull` or `export` wrote, or a checkpoint"
REMEDY = "take the model from its swarm again with `dupt-model pull`"
MANIFEST_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Verified:
    """What a model is, as far as that follows from its chain.

    Attributes:
        swarm_id: the swarm.
        state_digest: digest of the model's replica state, to which the chain leads.
        round: of that state.
        tokens: behind all contributions since round 0, as the state says.
        begins: the round of the state with which the chain begins; 0: all rounds were verified.
        weak_rounds: the rounds whose links less than a quorum has signed.
        contributors: all whose contributions counted, those with the most tokens first; see `Ledger`.
        unchecked: what could not be checked, and why: sentences.
    """

    swarm_id: str
    state_digest: str
    round: int
    tokens: int
    begins: int
    weak_rounds: tuple[int, ...]
    contributors: tuple[Entry, ...]
    unchecked: tuple[str, ...]

    @property
    def links(self) -> int:
        """How many there are, strong or weak."""
        return self.round - self.begins


@dataclass(frozen=True)
class _Model:
    """A model whose weights have the digest of its state, as far as ``unchecked`` does not say otherwise."""

    manifest: Manifest
    index: Index
    chain: Path
    described: bool
    unchecked: tuple[str, ...] = ()


def verify(path: Path | str, initial_digest: str = "") -> Verified:
    """Check a model by its chain of rounds: each signature and each link, from the first state to its own.

    Args:
        path: a model folder, an exported one, a checkpoint, or a peer's folder with checkpoints.
        initial_digest: of the state of round 0, where the manifest names none. Empty: that which the
            manifest's seed draws, on this machine.

    Raises:
        VerificationError: the chain is damaged, incomplete or forged, or leads to another state.
        CheckpointError: there is no model, or its weights are damaged.
        ManifestError: its manifest or its tokenizer is not valid.
    """
    path = Path(path)
    model = _exported(path) if (path / STATE_INDEX_FILE).exists() else _saved(path)
    chain, unchecked = _load(model), list(model.unchecked)
    begins = chain.electorate.round - len(chain.links)
    if begins:
        unchecked.append(
            f"the rounds up to round {begins}, with whose state the chain begins, on the word of who gave it"
        )
    elif model.manifest.initial_digest or initial_digest or model.described:
        _check_first(chain, model, initial_digest)
    else:
        unchecked.append("the first state: the swarm trains a custom model, which its manifest does not draw")
    _check_state(chain, model)
    if begins or model.manifest.rounds.exchange != "share":
        unchecked.append("the state's number of tokens: it does not follow from these links alone")
    else:
        _check_tokens(chain, model)
    return Verified(
        swarm_id=model.manifest.swarm_id,
        state_digest=chain.head,
        round=chain.electorate.round,
        tokens=model.index.header["tokens_total"],
        begins=begins,
        weak_rounds=tuple(number for number, link in enumerate(chain.links, begins + 1) if link.choice.weak),
        contributors=tuple(entry for entry in Bookkeeping().read(chain).entries if entry.rounds),
        unchecked=tuple(unchecked),
    )


def _saved(path: Path) -> _Model:
    saved = SavedModel.load(path, remedy=SOURCE)
    if saved.chain is None:
        raise VerificationError(
            f"{path}: no {CHAIN_FILE} there, so nothing says which rounds have led to the model; {REMEDY}"
        )
    return _Model(saved.manifest, saved.state.blob.index, saved.chain, saved.described)


def _exported(folder: Path) -> _Model:
    """One whose weights are in another form: they are compared with the hashes of the state's chunks."""
    manifest = Manifest.from_bytes(
        _read(folder, MANIFEST_FILE, MANIFEST_BYTES_MAX), f"{folder / MANIFEST_FILE}"
    )
    layout = layout_of(build_outline(manifest).parameters())
    try:
        index = Index.parse(_read(folder, STATE_INDEX_FILE, INDEX_BYTES_MAX))
        check_header(index, layout, build_outer(manifest).buffer_names)
    except ValueError as error:
        raise VerificationError(f"{folder / STATE_INDEX_FILE}: {error}; export the model again") from error
    config = read_json(folder, CONFIG, CONFIG_BYTES_MAX) or {}
    unchecked = list[str]()
    if "model_type" in config:
        _check_config(folder, manifest)
    if not _has_swarms_tokenizer(folder, manifest, changed="model_type" in config):
        unchecked.append("the tokenizer: this format needs more of it than the swarm's has")
    parameters = _parameters(folder, manifest, config)
    if parameters is None:
        unchecked.append(
            "the weights: of a model that has learnt a task they are not compared in this format"
        )
        return _Model(manifest, index, folder / CHAIN_FILE, True, tuple(unchecked))
    hashes = chunk_hashes(ReplicaState.initial(parameters, ()).anchor.numpy().data)
    if hashes != list(index.chunk_sha256[: len(hashes)]):
        raise VerificationError(
            f"{folder / SINGLE}: the weights are not those of the state {index.digest[:12]}…; export it again"
        )
    return _Model(manifest, index, folder / CHAIN_FILE, True, tuple(unchecked))


def _read(folder: Path, name: str, most: int) -> bytes:
    path = find_file(folder, name)
    if path is None:
        raise VerificationError(f"{folder / name}: missing; export the model again")
    return read_bytes(path, most)


def _check_config(folder: Path, manifest: Manifest) -> None:
    """Whether the same weights make the same model there: config.json says how they are computed with."""
    architecture, config = read_config(folder)
    if architecture.model(config) != manifest.model:
        raise VerificationError(f"{folder / CONFIG}: not of the swarm's model; export it again")


def _has_swarms_tokenizer(folder: Path, manifest: Manifest, *, changed: bool) -> bool:
    """``changed``: for a task or an encoder it may be another, which `transformers` needs."""
    found = hashlib.sha256(_read(folder, TOKENIZER_FILE, BYTES_MAX)).hexdigest()
    if found == manifest.tokenizer.sha256:
        return True
    if changed and (manifest.objective.supervised or manifest.model.bidirectional):
        return False
    raise VerificationError(f"{folder / TOKENIZER_FILE}: not the swarm's; export the model again")


def _parameters(folder: Path, manifest: Manifest, config: Mapping[str, object]) -> list[Tensor] | None:
    """In the order of the replica state; None: they cannot be put in that order."""
    if "model_type" in config:
        return None if manifest.objective.supervised else read_hugging_face(folder).parameters
    names = [name for name, _ in build_outline(manifest).named_parameters()]
    try:
        with safe_open(folder / SINGLE, framework="pt") as file:
            return [file.get_tensor(name) for name in names]
    except (SafetensorError, OSError) as error:
        raise VerificationError(f"{folder / SINGLE}: damaged ({error}); export the model again") from error


def _load(model: _Model) -> Chain:
    """The chain, each of its signatures and links checked.

    Raises:
        VerificationError: it is damaged, a link is missing or forged, or it is another swarm's.
    """
    try:
        return ChainFile(model.chain, Words(model.manifest.swarm_id)).load()
    except ValueError as error:
        raise VerificationError(f"{model.chain.parent}/{error}; {REMEDY}") from error
    except OSError as error:
        raise VerificationError(f"{model.chain}: cannot be read ({error.strerror}); {REMEDY}") from error


def _check_first(chain: Chain, model: _Model, initial_digest: str) -> None:
    named = [digest for digest in (model.manifest.initial_digest, initial_digest) if digest]
    wrong = [wanted for wanted in named or [_drawn(model.manifest)] if wanted != chain.first]
    if not wrong:
        return
    problem = (
        f"{model.chain}: it begins with the state {chain.first[:12]}… and not with {wrong[0][:12]}…, so it "
        "is another swarm's, or forged"
    )
    if named:
        raise VerificationError(f"{problem}; {REMEDY}")
    raise VerificationError(
        f"{problem}; or else the swarm began on a processor of another kind, which draws other weights from "
        "the seed: then ask somebody you trust for the digest of its first state, and give that",
        setting="initial_digest",
    )


def _drawn(manifest: Manifest) -> str:
    """The digest of the state of round 0 that the seed draws on this machine."""
    return first_state(manifest, list(first_model(manifest).parameters())).digest


def _check_state(chain: Chain, model: _Model) -> None:
    """Whether the chain leads to the model's state; what goes on from there is cut.

    Raises:
        VerificationError: it does not.
    """
    digest, header = model.index.digest, model.index.header
    round, ends = header["round"], chain.electorate.round
    begins = ends - len(chain.links)
    if digest in chain:
        chain.cut(digest)
        if (chain.electorate.round, chain.electorate.to_json()) != (round, header["electorate"]):
            raise VerificationError(
                f"{model.chain}: its links count other rounds and peers than the model's state itself, so "
                f"they are forged; {REMEDY}"
            )
        return
    if not begins <= round <= ends:
        gap = f"ends at round {ends}" if round > ends else f"begins at round {begins}"
        raise VerificationError(
            f"{model.chain}: it {gap}, and the model is of round {round}: links are missing; {REMEDY}"
        )
    states = [chain.first, *(link.after for link in chain.links)]
    raise VerificationError(
        f"{model.chain}: at round {round} it leads to the state {states[round - begins][:12]}…, and the "
        f"model is {digest[:12]}…: it is another branch's, or the weights were changed; {REMEDY}"
    )


def _check_tokens(chain: Chain, model: _Model) -> None:
    counted, said = sum(counted_in(chain.links).values()), model.index.header["tokens_total"]
    if counted != said:
        raise VerificationError(
            f"{model.chain}: the links count {counted:,} tokens, and the model's state {said:,}, so they are "
            f"forged; {REMEDY}"
        )
