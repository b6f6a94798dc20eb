"""Checking a model by the chain of its rounds: what is sound, and all that may be wrong with it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dupt_swarm import SavedModel, export, verify
from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.errors import CheckpointError, DuptError, VerificationError
from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.export.origin import Origin
from dupt_swarm.learning.objectives import first_model
from dupt_swarm.learning.tokenizer import ENCODER_SPECIAL, Tokenizer, train_tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.models.saved_model import MANIFEST_FILE, TOKENIZER_FILE, write_shared
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.ledger import Entry
from dupt_swarm.replica.link import Brought, Choice
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from tests.support.kept_rounds import TOKENS, KeptRounds
from tests.support.saved_models import small_manifest, small_tokenizer
from tests.support.signed_records import fresh_keys
from tests.support.tiny import tiny_manifest

ROUNDS = 4
KEYS = fresh_keys(4)
TOKENIZER = small_tokenizer()


def first_of(manifest: Manifest, seed: int | None = None) -> ReplicaState:
    """That which its seed draws, or another one."""
    drawn = manifest if seed is None else manifest.model_copy(update={"seed": seed})
    return first_state(manifest, list(first_model(drawn).parameters()))


def rounds_of(manifest: Manifest, first: ReplicaState | None = None) -> KeptRounds:
    """Four of three peers: a weak one, two of all, and one of two of them."""
    kept = KeptRounds.from_round_0(manifest, KEYS[:3], first or first_of(manifest)).go_on(2)
    kept.end_round([0, 1])
    assert len(kept.links) == ROUNDS
    return replace(kept, keys=KEYS)


def tuned_manifest() -> Manifest:
    """Of a swarm that learns a task, for which the vocabulary has three tokens more."""
    return tiny_manifest(
        TOKENIZER.sha256,
        TOKENIZER.vocabulary_size,
        model={"vocabulary_size": TOKENIZER.vocabulary_size + 3},
        objective={"kind": "classification", "labels": ["a", "b"]},
    )


@pytest.fixture(scope="module")
def kept() -> KeptRounds:
    """Those of a swarm with a very small model."""
    return rounds_of(small_manifest())


def write(
    folder: Path,
    kept: KeptRounds,
    state: ReplicaState | None = None,
    chain: Chain | None = None,
    tokenizer: Tokenizer = TOKENIZER,
) -> Path:
    """A model folder as `pull` writes it, with the last state and the whole chain if no others are given."""
    folder.mkdir(parents=True)
    write_shared(folder, kept.manifest, tokenizer.to_bytes(), None)
    save_state(state or kept.states[-1], folder / REPLICA_FILE)
    ChainFile(folder / CHAIN_FILE, Words(kept.manifest.swarm_id)).write(chain or kept.chain())
    return folder


@pytest.fixture
def model(kept, tmp_path) -> Path:
    """A sound one."""
    return write(tmp_path / "model", kept)


def test_a_sound_model(kept, model) -> None:
    """From the first round on: who brought what, which rounds are weak, and nothing is left unchecked."""
    found = verify(model)
    assert (found.swarm_id, found.state_digest) == (kept.manifest.swarm_id, kept.states[-1].digest)
    assert (found.begins, found.round, found.links, found.weak_rounds) == (0, ROUNDS, ROUNDS, (1,))
    assert found.tokens == kept.states[-1].swarm_tokens == (3 * ROUNDS - 1) * TOKENS
    one, two, three, _ = kept.ids
    assert set(found.contributors) == {
        Entry(one, 4 * TOKENS, 4, 0, 1, 4),
        Entry(two, 4 * TOKENS, 4, 0, 1, 4),
        Entry(three, 3 * TOKENS, 3, 0, 1, 3),
    }
    assert found.contributors[-1].peer_id == three
    assert found.unchecked == ()


def test_before_the_first_round(kept, tmp_path) -> None:
    """A chain without a link leads to the state that the manifest draws."""
    folder = write(tmp_path / "model", kept, kept.states[0], kept.chain(0))
    found = verify(folder)
    assert (found.round, found.links, found.contributors, found.unchecked) == (0, 0, (), ())


def test_a_checkpoint(kept, tmp_path) -> None:
    """Of a peer whose chain has gone on since: it is verified up to the checkpoint's state."""
    folder = write(tmp_path / "peer" / "checkpoint-00000007", kept, kept.states[3])
    for name in (MANIFEST_FILE, TOKENIZER_FILE, CHAIN_FILE):
        (folder / name).rename(folder.parent / name)
    for path in (folder, folder.parent):
        assert (verify(path).state_digest, verify(path).round) == (kept.states[3].digest, 3)


@pytest.mark.parametrize("format", ["gpt2", "safetensors"])
def test_an_exported_model(model, tmp_path, format: str) -> None:
    """Its weights are compared bit by bit, in whatever form; and so it is copied on."""
    export(SavedModel.load(model), tmp_path / "out", format)
    assert verify(tmp_path / "out") == verify(model)
    SavedModel.load(model).save(tmp_path / "copy")
    assert verify(tmp_path / "copy") == verify(model)


@pytest.mark.parametrize("format", ["bert", "safetensors"])
def test_an_exported_encoder(tmp_path, format: str) -> None:
    """Its weights are compared as those of a decoder."""
    tokenizer = train_tokenizer([], 270, ENCODER_SPECIAL)
    parts = ARCHITECTURES["bert"].parts
    manifest = tiny_manifest(
        tokenizer.sha256, tokenizer.vocabulary_size, model=parts, objective={"kind": "mlm"}
    )
    folder = write(tmp_path / "model", rounds_of(manifest), tokenizer=tokenizer)
    export(SavedModel.load(folder), tmp_path / "out", format)
    unchecked = verify(tmp_path / "out").unchecked
    assert replace(verify(tmp_path / "out"), unchecked=()) == verify(folder)
    assert [reason.split(":")[0] for reason in unchecked] == ["the tokenizer"] * (format == "bert")
    if format == "bert":
        flip(tmp_path / "out" / "model.safetensors", -5)
        with pytest.raises(VerificationError, match="the weights are not those of the state"):
            verify(tmp_path / "out")


def test_a_chain_whose_beginning_nobody_knew(kept, tmp_path) -> None:
    """It is verified from there on; what that leaves open is said."""
    chain = kept.chain().copied_from(kept.states[2].digest)
    found = verify(write(tmp_path / "model", kept, chain=chain))
    assert (found.begins, found.links, found.weak_rounds) == (2, 2, ())
    assert [reason.partition(",")[0].partition(":")[0] for reason in found.unchecked] == [
        "the rounds up to round 2",
        "the state's number of tokens",
    ]


def test_a_first_state_that_is_named(tmp_path) -> None:
    """By the manifest, or by whoever asks: then nothing is drawn."""
    manifest = small_manifest()
    first = first_of(manifest, seed=99)
    named = rounds_of(manifest.model_copy(update={"initial_digest": first.digest}), first)
    assert verify(write(tmp_path / "named", named)).unchecked == ()
    folder = write(tmp_path / "elsewhere", rounds_of(manifest, first))
    assert verify(folder, first.digest).unchecked == ()
    with pytest.raises(
        VerificationError, match=r"begins with the state .*; or else the swarm began on"
    ) as error:
        verify(folder)
    assert error.value.settings == ("initial_digest",)
    with pytest.raises(VerificationError, match=r"begins with the state .* or forged; take the model"):
        verify(folder, "1" * 64)
    with pytest.raises(VerificationError, match=r"and not with 1{12}…"):
        verify(tmp_path / "named", "1" * 64)
    other = rounds_of(manifest.changed({"initial_digest": "2" * 64}), first)
    with pytest.raises(VerificationError, match=r"and not with 2{12}…"):
        verify(write(tmp_path / "other", other), first.digest)


def test_a_custom_model(tmp_path) -> None:
    """What its first weights were, the manifest does not say."""
    manifest = small_manifest()
    first = first_state(manifest, [torch.zeros(20, 5)])
    folder = write(tmp_path / "model", rounds_of(manifest, first))
    [reason] = verify(folder).unchecked
    assert reason.startswith("the first state: the swarm trains a custom model")
    assert verify(folder, first.digest).unchecked == ()


def flip(path: Path, place: int) -> None:
    """Another bit of that byte is set."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def lines_of(folder: Path) -> list[bytes]:
    """The chain as it is kept: where it begins, and a line for each link."""
    return (folder / CHAIN_FILE).read_bytes().splitlines(keepends=True)


def rewrite(folder: Path, lines: Sequence[bytes]) -> None:
    (folder / CHAIN_FILE).write_bytes(b"".join(lines))


def put(folder: Path, kept: KeptRounds, chain: Chain) -> None:
    """Another chain takes the place of the sound one."""
    ChainFile(folder / CHAIN_FILE, Words(kept.manifest.swarm_id)).write(chain)


def signature_flipped(folder: Path, _: KeptRounds) -> None:
    lines = lines_of(folder)
    link = json.loads(lines[3])
    text = link["acceptances"][1]
    link["acceptances"][1] = text[:-20] + ("A" if text[-20] != "A" else "B") + text[-19:]
    rewrite(folder, [*lines[:3], json.dumps(link).encode() + b"\n", lines[4]])


def weights_flipped(folder: Path, _: KeptRounds) -> None:
    flip(folder / REPLICA_FILE, -5)


def weights_changed(folder: Path, kept: KeptRounds) -> None:
    state = kept.states[-1]
    anchor = state.anchor.clone()
    anchor[7] += 1
    changed = ReplicaState(
        state.round, state.swarm_tokens, state.layout, anchor, state.buffers, state.electorate
    )
    save_state(changed, folder / REPLICA_FILE)


def cut(folder: Path, _: KeptRounds) -> None:
    rewrite(folder, lines_of(folder)[:-1])


def torn(folder: Path, _: KeptRounds) -> None:
    (folder / CHAIN_FILE).write_bytes((folder / CHAIN_FILE).read_bytes()[:-9])


def one_missing(folder: Path, _: KeptRounds) -> None:
    lines = lines_of(folder)
    rewrite(folder, [*lines[:2], *lines[3:]])


def begun_too_late(folder: Path, kept: KeptRounds) -> None:
    save_state(kept.states[1], folder / REPLICA_FILE)
    put(folder, kept, kept.chain().copied_from(kept.states[3].digest))


def no_beginning(folder: Path, _: KeptRounds) -> None:
    rewrite(folder, lines_of(folder)[1:])


def none(folder: Path, _: KeptRounds) -> None:
    (folder / CHAIN_FILE).unlink()


def signed_by_others(folder: Path, kept: KeptRounds) -> None:
    """One of three who decide, and a stranger, have signed the last link."""
    branch = kept.branch(3)
    link = branch.link(kept.links[3].choice, kept.links[3].after, [0, 3])
    lines = lines_of(folder)
    branch.links.append(link)
    chain = kept.chain(3)
    chain.links.append(link)
    put(folder, kept, chain)
    assert lines_of(folder)[:4] == lines[:4]


def of_another_swarm(folder: Path, kept: KeptRounds) -> None:
    """With the same peers, and the same first state."""
    other = rounds_of(kept.manifest.model_copy(update={"name": "other"}), kept.states[0])
    put(folder, kept, other.chain())
    save_state(other.states[-1], folder / REPLICA_FILE)


def from_another_state(folder: Path, kept: KeptRounds) -> None:
    other = rounds_of(kept.manifest, first_of(kept.manifest, seed=99))
    put(folder, kept, other.chain())
    save_state(other.states[-1], folder / REPLICA_FILE)


def forked(folder: Path, kept: KeptRounds) -> None:
    """Sound links, of a branch that the third peer has made alone."""
    put(folder, kept, kept.branch(3).go_on(1, [2], weak=True).chain())


def past_forged(folder: Path, kept: KeptRounds) -> None:
    """A stranger has signed weak links to the very states, and names others as those who counted."""
    branch = kept.branch(0)
    for link in kept.links:
        brought = tuple(Brought(peer, "0" * 64, TOKENS) for peer in sorted(kept.ids[:3]))
        branch.links.append(branch.link(Choice(brought, weak=True), link.after, [3]))
        branch.states.append(kept.states[len(branch.links)])
    put(folder, kept, branch.chain())


def boast(folder: Path, kept: KeptRounds, round: int = 0, tokens: int = 0) -> None:
    """Those who decide have signed for a state that claims so much more than there was."""
    branch = kept.branch(3)
    state = kept.states[-1]
    boasting = ReplicaState(
        *(state.round + round, state.swarm_tokens + tokens, state.layout, state.anchor, state.buffers),
        state.electorate,
    )
    branch.links.append(branch.link(kept.links[3].choice, boasting.digest, [0, 1]))
    put(folder, kept, branch.chain())
    save_state(boasting, folder / REPLICA_FILE)


def more_tokens(folder: Path, kept: KeptRounds) -> None:
    boast(folder, kept, tokens=5)


def more_rounds(folder: Path, kept: KeptRounds) -> None:
    boast(folder, kept, round=1)


WRONG: dict[Callable[[Path, KeptRounds], None], tuple[type[DuptError], str]] = {
    signature_flipped: (
        VerificationError,
        r"model/chain\.jsonl: the link of round 3: acceptance 2: .*signature is wrong",
    ),
    weights_flipped: (CheckpointError, r"does not match the digest saved with it"),
    weights_changed: (VerificationError, r"at round 4 it leads to the state .* or the weights were changed;"),
    cut: (VerificationError, r"it ends at round 3, and the model is of round 4: links are missing;"),
    torn: (VerificationError, r"it ends at round 3, and the model is of round 4: links are missing;"),
    one_missing: (VerificationError, r"the link of round 2: .* before it: one is missing;"),
    begun_too_late: (VerificationError, r"it begins at round 3, and the model is of round 1: links are"),
    no_beginning: (VerificationError, r"model/chain\.jsonl: it does not say where it begins: not the first"),
    none: (VerificationError, r"model: no chain\.jsonl there, so nothing says which rounds"),
    signed_by_others: (VerificationError, r"the link of round 4: a strong link that less than a quorum"),
    of_another_swarm: (VerificationError, r"the link of round 1: acceptance 1: acceptance of another swarm;"),
    from_another_state: (VerificationError, r"it begins with the state .* another swarm's, or forged; or"),
    forked: (VerificationError, r"at round 4 it leads to the state .* it is another branch's, or the"),
    past_forged: (VerificationError, r"its links count other rounds and peers than the model's state"),
    more_rounds: (VerificationError, r"its links count other rounds and peers than the model's state"),
    more_tokens: (VerificationError, r"the links count 110 tokens, and the model's state 115, so they are"),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_what_is_wrong_is_named(kept, model, wrong: Callable[[Path, KeptRounds], None]) -> None:
    """With a remedy; and nothing of it is taken for sound."""
    kind, message = WRONG[wrong]
    wrong(model, kept)
    with pytest.raises(kind, match=message) as error:
        verify(model)
    assert "; " in str(error.value)


def test_each_chunk_of_exported_weights_counts(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger model has many."""
    monkeypatch.setattr("dupt_swarm.replica.blob.CHUNK_BYTES", 4096)
    folder = write(tmp_path / "model", rounds_of(small_manifest()))
    export(SavedModel.load(folder), tmp_path / "out", "safetensors")
    assert verify(tmp_path / "out") == verify(folder)
    flip(tmp_path / "out" / "model.safetensors", -5)
    with pytest.raises(VerificationError, match="weights are not those of the state"):
        verify(tmp_path / "out")


def test_where_tokens_do_not_follow(tmp_path) -> None:
    """From links of members that trusted one another."""
    manifest = small_manifest(rounds={"exchange": "reduce"}, aggregation={"rule": "mean"})
    first = first_of(manifest)
    kept = KeptRounds(manifest, KEYS[:3], 3, [first])
    [reason] = verify(write(tmp_path / "model", kept)).unchecked
    assert reason.startswith("the state's number of tokens: it does not follow")


EXPORTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights": (lambda out: flip(out / "model.safetensors", -5), r"weights are not those of the state"),
    "index": (lambda out: flip(out / "state.json", -5), r"state\.json: .*; export the model again"),
    "no manifest": (lambda out: (out / MANIFEST_FILE).unlink(), r"manifest\.json: missing; export"),
    "tokenizer": (lambda out: flip(out / TOKENIZER_FILE, 99), r"tokenizer\.json: not the swarm's; export"),
    "no chain": (lambda out: (out / CHAIN_FILE).unlink(), r"chain\.jsonl: cannot be read \(No such file"),
    "no weights": (lambda out: (out / "model.safetensors").write_bytes(b"\0" * 9), r"model\.safetensors: "),
}


@pytest.mark.parametrize("format", ["gpt2", "safetensors"])
@pytest.mark.parametrize("what", EXPORTED)
def test_what_is_wrong_with_an_exported_model(model, tmp_path, what: str, format: str) -> None:
    """The same where the weights have another form."""
    damage, message = EXPORTED[what]
    export(SavedModel.load(model), tmp_path / "out", format)
    damage(tmp_path / "out")
    with pytest.raises(DuptError, match=message):
        verify(tmp_path / "out")


@pytest.mark.parametrize("kind", ["language", "classification"])
def test_weights_that_would_be_computed_with_otherwise(tmp_path, kind: str) -> None:
    """config.json says how, of language as of a task that a swarm has learnt."""
    folder = write(
        tmp_path / "model", rounds_of(tuned_manifest() if kind == "classification" else small_manifest())
    )
    export(SavedModel.load(folder), tmp_path / "out", "gpt2")
    assert verify(tmp_path / "out").state_digest == verify(folder).state_digest
    path = tmp_path / "out" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layer_norm_epsilon": 1e-3}))
    with pytest.raises(VerificationError, match=r"config\.json: not of the swarm's model; export it again"):
        verify(tmp_path / "out")


def test_what_is_not_compared_of_an_exported_task(tmp_path) -> None:
    """Of Hugging Face's format its tokenizer, which has the task's tokens, and its weights; else nothing."""
    folder = write(tmp_path / "model", rounds_of(tuned_manifest()))
    for format, expected in (("gpt2", ["the tokenizer", "the weights"]), ("safetensors", [])):
        export(SavedModel.load(folder), tmp_path / format, format)
        assert [reason.split(":")[0] for reason in verify(tmp_path / format).unchecked] == expected


def test_a_changed_model_has_no_chain(kept, model, tmp_path) -> None:
    """What another state has become is another model: nothing of the chain goes with it."""
    taken = Origin(swarm_id=kept.manifest.swarm_id, round=3, swarm_tokens=9, state_digest="0" * 64)
    export(replace(SavedModel.load(model), origin=taken), tmp_path / "out")
    assert not {CHAIN_FILE, "state.json", MANIFEST_FILE} & {
        path.name for path in (tmp_path / "out").iterdir()
    }
