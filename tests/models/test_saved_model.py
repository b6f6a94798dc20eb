"""Model folders: written at once or not at all, read back whole or refused with a reason."""

import json
import os
from pathlib import Path

import pytest
import torch

from dupt_swarm import SavedModel
from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk.folders import SwarmFolder
from dupt_swarm.errors import CheckpointError, ManifestError, UsageError
from dupt_swarm.learning.export.origin import ORIGIN_FILE
from dupt_swarm.models.pulling import origin_of
from dupt_swarm.models.saved_model import MANIFEST_FILE, TOKENIZER_FILE, check_vacant, new_model_folder
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.view import View
from dupt_swarm.replica.storage import save_state
from tests.support.saved_models import small_manifest, small_tokenizer, write_model, write_state


@pytest.fixture
def model(tmp_path: Path) -> SavedModel:
    """One without an origin."""
    return write_model(tmp_path / "model")


def test_it_is_read_back_as_it_was_saved(model: SavedModel, tmp_path: Path) -> None:
    """In a new folder or an empty one, with its origin and tokenizer; nothing else is left beside it."""
    name = StateName(model.state.round, model.state.swarm_tokens, model.state.digest)
    origin = origin_of(model.manifest, name, View(0.0, ()))
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "deep" / "new", tmp_path / "empty"):
        saved = SavedModel(model.folder, model.manifest, model.tokenizer, model.state, origin).save(folder)
        assert saved.folder == folder
        assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "whoever reads one reads all"
        again = SavedModel.load(folder)
        assert (again.state.digest, again.origin, again.manifest) == (
            model.state.digest,
            origin,
            model.manifest,
        )
        assert again.tokenizer.to_bytes() == model.tokenizer.to_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "deep", "empty"}


def test_an_empty_folder_that_one_is_in_stays(
    model: SavedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.` is not replaced by another folder of that name."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rename, named = Path.rename, list[str]()

    def noted(path: Path, to: Path) -> Path:
        named.append(to.name)
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", noted)
    model.save(Path())
    assert named[-1] == REPLICA_FILE, "without it, there is no model"
    assert SavedModel.load(Path()).state.digest == model.state.digest
    assert Path(REPLICA_FILE).exists()


def test_what_a_killed_process_left_gives_way(model: SavedModel, tmp_path: Path) -> None:
    """In a container, the next process has the number of the one before."""
    (tmp_path / f".new.{os.getpid()}.unfinished").mkdir()
    (tmp_path / f".new.{os.getpid()}.unfinished" / "left").write_text("x")
    model.save(tmp_path / "new")
    assert not (tmp_path / "new" / "left").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "new"}


def test_what_is_there_is_not_overwritten(model: SavedModel, tmp_path: Path) -> None:
    """Neither a model nor a file; a link that leads nowhere is something too."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for taken in (model.folder, tmp_path / "file", tmp_path / "link"):
        with pytest.raises(UsageError, match="not an empty folder; choose another, or remove it"):
            check_vacant(taken)
        with pytest.raises(UsageError):
            model.save(taken)
    assert SavedModel.load(model.folder).state.digest == model.state.digest


def test_what_cannot_be_looked_at(model: SavedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is too long, and folders that are closed to us (by a stand-in), are named."""
    with pytest.raises(UsageError, match=r"x: cannot be looked at \(File name too long\); choose another"):
        model.save(tmp_path / (300 * "x"))

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(UsageError, match=r"closed: cannot be looked at \(Permission denied\); choose"):
        check_vacant(tmp_path / "closed")
    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(CheckpointError, match=r"no model there \(manifest.json: Permission denied; one has"):
        SavedModel.load(tmp_path / "closed")


def test_a_disk_that_fails_leaves_nothing(model: SavedModel, tmp_path: Path) -> None:
    """The error names the folder, and what was written is removed."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"file/model: the model could not be written \("):
        model.save(tmp_path / "file" / "model")

    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("dupt_swarm.models.saved_model.sync_files", fail)
        with pytest.raises(CheckpointError, match="No space left on device"):
            model.save(tmp_path / "new")
    with pytest.raises(OSError, match="elsewhere"), new_model_folder(tmp_path / "new"):
        raise OSError(28, "elsewhere")  # as of what a swarm's node writes while its state is pulled
    assert {path.name for path in tmp_path.iterdir()} == {"model", "file"}


def test_checkpoints_and_peers_folders(model: SavedModel, tmp_path: Path, monkeypatch) -> None:
    """Of a peer's folder the newest checkpoint counts; a checkpoint is a model, from within too."""
    folder = SwarmFolder(tmp_path / "state", model.manifest.swarm_id)
    folder.save_shared(model.manifest.canonical_bytes(), model.tokenizer.to_bytes())
    with pytest.raises(CheckpointError, match=r"no model there yet \(no replica.safetensors\)"):
        SavedModel.load(folder.path)
    for number in range(2):
        newer = write_state(
            tmp_path / str(number), model.manifest, model.tokenizer, [torch.full((3,), float(number))]
        )
        with folder.new_checkpoint() as path:
            save_state(newer.state, path / REPLICA_FILE)
    folder.close()
    assert folder.checkpoint is not None
    monkeypatch.chdir(folder.checkpoint)
    for path in (folder.path, folder.checkpoint, Path()):
        assert SavedModel.load(path).state.digest == newer.state.digest


def test_damage_is_said(model: SavedModel) -> None:
    """A changed byte of each file, and one that is missing."""
    replica = model.folder / REPLICA_FILE
    good = replica.read_bytes()
    replica.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"does not match the digest .*\); take the model from its"):
        SavedModel.load(model.folder)
    replica.write_bytes(good)

    (model.folder / ORIGIN_FILE).write_text('{"swarm_id": 3}')
    with pytest.raises(CheckpointError, match=r"origin.json: not a valid origin \(.*remove it"):
        SavedModel.load(model.folder)
    (model.folder / ORIGIN_FILE).unlink()

    other = json.loads(small_tokenizer(290).to_bytes())
    (model.folder / TOKENIZER_FILE).write_text(json.dumps(other))
    with pytest.raises(ManifestError, match=r"tokenizer.json: its SHA-256 is .* wants .* take the model"):
        SavedModel.load(model.folder)

    (model.folder / MANIFEST_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"no model there .*manifest.json.*dupt-model pull"):
        SavedModel.load(model.folder)


def test_where_there_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no folder is called so; of a folder the files that it lacks are named, and no other place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    remedy = "give a folder that `dupt-model pull` wrote, or a checkpoint"
    wanted = "manifest.json, tokenizer.json and replica.safetensors"
    for path, said in (
        ("nowhere", "no folder there"),
        ("x" * 300, "no folder there"),
        ("file", "no folder there"),
        ("empty", f"no model there (manifest.json: No such file or directory; one has {wanted})"),
    ):
        with pytest.raises(CheckpointError) as raised:
            SavedModel.load(Path(path))
        assert str(raised.value) == f"{path}: {said}; {remedy}"


def test_a_model_of_ones_own_cannot_be_built(tmp_path: Path) -> None:
    """A swarm may train any module: its state can be taken away, and is not forced into a GPT."""
    model = write_state(tmp_path / "own", small_manifest(), small_tokenizer(), [torch.ones(2, 3)])
    assert not model.described
    with pytest.raises(ManifestError, match="custom model that the manifest does not describe"):
        model.build(torch.device("cpu"))
    assert write_model(tmp_path / "gpt").described
