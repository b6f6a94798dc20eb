"""`SavedModel`: a model as it lies in a folder, to be taken away from its swarm."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk.files import sync_files, sync_folder
from dupt_swarm.disk.folders import CHAIN_FILE
from dupt_swarm.errors import CheckpointError, ManifestError, UsageError
from dupt_swarm.learning.export.origin import ORIGIN_FILE, Origin
from dupt_swarm.learning.importing.hugging_face import (
    CONFIG,
    Imported,
    is_hugging_face,
    read_hugging_face,
)
from dupt_swarm.learning.objectives import build_model, build_outline
from dupt_swarm.learning.strategies.flat import unflatten
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.layout import layout_of
from dupt_swarm.manifest.manifest import NAME_LENGTH_MAX
from dupt_swarm.manifest.tables import LANGUAGE, MASKED
from dupt_swarm.presets import load_beginning
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import load_state, save_state

MANIFEST_FILE, TOKENIZER_FILE = "manifest.json", "tokenizer.json"
FILES = (MANIFEST_FILE, TOKENIZER_FILE, ORIGIN_FILE, CHAIN_FILE, REPLICA_FILE)  # of a model folder
REMEDY = "give a folder that `dupt-model pull` wrote, or a checkpoint"
AGAIN = "take the model from its swarm again"


@dataclass(frozen=True)
class SavedModel:
    """Manifest, tokenizer and replica state of one model.

    Attributes:
        folder: where its replica state lies.
        origin: where it was taken from, if that is known.
        notes: what is to be known of it besides: sentences.
    """

    folder: Path
    manifest: Manifest
    tokenizer: Tokenizer
    state: ReplicaState
    origin: Origin | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, path: Path | str, *, remedy: str = REMEDY) -> SavedModel:
        """Read a model folder, a checkpoint, or a peer's folder with checkpoints, of which the newest counts.

        Args:
            path: the folder.
            remedy: what to say where there is no model.

        Raises:
            CheckpointError: there is no model, or it is damaged.
            ManifestError: its manifest or its tokenizer is not valid, or they do not belong together.
        """
        path = Path(path)
        if not _is_folder(path):
            raise CheckpointError(f"{path}: no folder there; {remedy}")
        newest = find_model(path)
        try:
            shared = _shared_folder(newest)
            manifest = Manifest.from_bytes((shared / MANIFEST_FILE).read_bytes(), f"{shared / MANIFEST_FILE}")
            data = (shared / TOKENIZER_FILE).read_bytes()
        except OSError as error:
            raise CheckpointError(
                f"{path}: no model there ({Path(error.filename).name}: {error.strerror}; one has "
                f"{MANIFEST_FILE}, {TOKENIZER_FILE} and {REPLICA_FILE}); {remedy}"
            ) from error
        if not (newest / REPLICA_FILE).exists():
            raise CheckpointError(f"{path}: no model there yet (no {REPLICA_FILE}); {remedy}")
        found = hashlib.sha256(data).hexdigest()
        if found != manifest.tokenizer.sha256:
            raise ManifestError(
                f"{shared / TOKENIZER_FILE}: its SHA-256 is {found[:12]}…, the manifest beside it "
                f"wants {manifest.tokenizer.sha256[:12]}…; {AGAIN}"
            )
        tokenizer = Tokenizer.of(manifest, data, str(shared / TOKENIZER_FILE))
        origin = newest / ORIGIN_FILE
        return cls(
            newest,
            manifest,
            tokenizer,
            load_state(newest / REPLICA_FILE, AGAIN),
            Origin.load(origin) if origin.exists() else None,
        )

    @property
    def chain(self) -> Path | None:
        """The file with the links of the rounds that led to it, and maybe of later ones; None: none here."""
        path = _shared_folder(self.folder) / CHAIN_FILE
        return path if (self.folder / REPLICA_FILE).exists() and path.exists() else None

    @property
    def described(self) -> bool:
        """Whether the manifest describes its model; a swarm may train any module of the library's users."""
        return layout_of(build_outline(self.manifest).parameters()) == self.state.layout

    def build(self, device: torch.device) -> nn.Module:
        """The model with its weights, on ``device``, in evaluation mode.

        Raises:
            ManifestError: the swarm trained a model of its own, which its manifest does not describe.
        """
        model = build_model(self.manifest)
        if layout_of(model.parameters()) != self.state.layout:
            raise ManifestError(
                f"{self.folder}: its swarm trained a custom model that the manifest does not describe: "
                "build it in Python, and fill it with the values of `SavedModel.state`"
            )
        unflatten(self.state.anchor, list(model.parameters()))
        return model.to(device).eval()

    def save(self, folder: Path) -> SavedModel:
        """Write a model folder, all at once, and say what it is now.

        Raises:
            UsageError: ``folder`` is there already, and not empty.
            CheckpointError: it cannot be written.
        """
        with new_model_folder(folder) as unfinished:
            write_shared(unfinished, self.manifest, self.tokenizer.to_bytes(), self.origin, self.chain)
            save_state(self.state, unfinished / REPLICA_FILE)
        return replace(self, folder=folder)


def _shared_folder(folder: Path) -> Path:
    """Where manifest, tokenizer and chain lie; a peer has several checkpoints beside them."""
    return folder if (folder / MANIFEST_FILE).exists() else folder.absolute().parent


def _is_folder(path: Path) -> bool:
    """Whether a folder is there.

    Raises:
        CheckpointError: this user may not look.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except PermissionError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
    except (OSError, ValueError):  # as of a name that is too long, or has a null
        return False


def find_model(path: Path) -> Path:
    """``path`` itself, or its newest checkpoint if it is a peer's folder."""
    return max(path.glob("checkpoint-" + 8 * "[0-9]"), default=path)


def write_shared(
    folder: Path, manifest: Manifest, tokenizer: bytes, origin: Origin | None, chain: Path | None = None
) -> None:
    """Write what a model folder holds beside its replica state; ``chain`` is copied.

    Raises:
        CheckpointError: it cannot be written.
    """
    with writing_model(folder):
        (folder / MANIFEST_FILE).write_bytes(manifest.canonical_bytes())
        (folder / TOKENIZER_FILE).write_bytes(tokenizer)
        if origin is not None:
            (folder / ORIGIN_FILE).write_bytes(origin.to_bytes())
        if chain is not None:
            shutil.copyfile(chain, folder / CHAIN_FILE)


def check_vacant(folder: Path) -> None:
    """See beforehand whether a model can be written to ``folder``.

    Raises:
        UsageError: it is no empty folder, nor can it become one.
    """
    try:
        vacant = not any(folder.iterdir()) if folder.is_dir() else not os.path.lexists(folder)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be looked at ({error.strerror}); choose another folder"
        ) from error
    if not vacant:
        raise UsageError(f"{folder}: already there, and not an empty folder; choose another, or remove it")


@contextmanager
def new_model_folder(folder: Path) -> Iterator[Path]:
    """A folder to write a model into; it becomes ``folder`` if all goes well, and else is gone.

    Raises:
        UsageError: see `check_vacant`.
        CheckpointError: it cannot be written.
    """
    check_vacant(folder)
    folder = folder.resolve()
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # of one that was killed: numbers come again
    try:
        with writing_model(folder):
            unfinished.mkdir(parents=True)
        yield unfinished
        with writing_model(folder):
            for path in unfinished.iterdir():  # safetensors lets nobody else read what it writes
                path.chmod(unfinished.stat().st_mode & 0o666)
            sync_files(sorted(unfinished.iterdir()), lambda *_: True)
            _name(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _name(unfinished: Path, folder: Path) -> None:
    if folder.is_dir():  # somebody may be in it: it stays, and the state comes last
        for path in sorted(unfinished.iterdir(), key=lambda path: path.name == REPLICA_FILE):
            path.rename(folder / path.name)
        sync_folder(folder)
    else:
        unfinished.rename(folder)
    sync_folder(folder.parent)


@contextmanager
def writing_model(folder: Path) -> Iterator[None]:
    """Inside, only files of a model are written, which is to be in ``folder``.

    Raises:
        CheckpointError: one cannot be.
    """
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the model could not be written ({error.strerror or error}); "
            "free some space there, or choose another folder"
        ) from error


def load_model(path: Path) -> SavedModel:
    """The model at ``path``: as `SavedModel.load`, or a folder in Hugging Face's format.

    Raises:
        CheckpointError: there is no model, or it is damaged.
        ManifestError: it cannot be represented here, or its files do not belong together.
    """
    if is_hugging_face(path):
        return load_foreign(path)
    return SavedModel.load(path, remedy=f"{REMEDY}, or a folder in Hugging Face's format ({CONFIG})")


def load_foreign(folder: Path) -> SavedModel:
    """The model in ``folder``, with the manifest of a swarm that trains it on.

    Raises:
        CheckpointError: a file is missing, damaged, or not what config.json says.
        ManifestError: the model cannot be represented here.
    """
    found = read_hugging_face(folder)
    tokenizer = Tokenizer.from_foreign(
        found.tokenizer,
        found.end_of_text,
        str(folder / "tokenizer.json"),
        encoder=found.model.kind == "encoder",
    )
    about = {"sha256": tokenizer.sha256, "vocabulary_size": tokenizer.vocabulary_size}
    tables = {
        "name": re.sub("[^A-Za-z0-9]+", "-", folder.resolve().name).strip("-")[:NAME_LENGTH_MAX] or "model",
        "seed": 0,
        "tokenizer": about | {"end_of_text": found.end_of_text},
        "model": found.model.model_dump(),
        "objective": _objective(found, tokenizer),
    }
    manifest = Manifest.of(load_beginning("continue", found.model.context_length) | tables, str(folder))
    state = first_state(manifest, found.parameters)
    notes = (
        f"{' and '.join(found.drawn)} are not in the folder: their weights are drawn, and know nothing yet",
    )
    return SavedModel(folder, manifest, tokenizer, state, notes=notes if found.drawn else ())


def _objective(found: Imported, tokenizer: Tokenizer) -> dict[str, object]:
    """What a swarm that trains it on learns: of an encoder that has learnt whether texts follow, that too.

    Raises:
        ManifestError: it is an encoder, and its tokenizer is none of an encoder's.
    """
    if not found.model.bidirectional:
        return {"kind": LANGUAGE}
    _ = tokenizer.encoder_tokens
    return {"kind": MASKED, "nsp": not found.drawn}
