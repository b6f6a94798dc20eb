"""Which checkpoint a peer goes on from when the newest is damaged."""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from dupt_swarm import GPT, Swarm
from dupt_swarm.checkpoint import FINAL_MARK, ORACLE_FILE, REPLICA_FILE, newest_whole
from dupt_swarm.disk.folders import CHECKPOINTS_KEPT, SwarmFolder
from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.safe_state import write_tree
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from tests.support.tiny import settings, tiny_manifest

TOKENIZER = b"not used by these tests"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SwarmFolder]:
    folder = SwarmFolder(tmp_path, "s-0123456789ab")
    yield folder
    folder.close()


def checkpoint(folder: SwarmFolder) -> Path:
    with folder.new_checkpoint() as path:
        save_state(ReplicaState.initial([torch.ones(10)], ["velocity"]), path / REPLICA_FILE)
        write_tree(path / ORACLE_FILE, {"steps": 3})
        (path / FINAL_MARK).touch()
    assert folder.checkpoint is not None
    return folder.checkpoint


@pytest.mark.parametrize("file", [REPLICA_FILE, ORACLE_FILE])
@pytest.mark.parametrize("content", [b"", bytes(4096)])
def test_the_one_before_takes_its_place(
    folder: SwarmFolder, file: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The damaged one is kept under another name, and the one before is no oracle's last word any more."""
    older, newest = checkpoint(folder), checkpoint(folder)
    assert newest_whole(folder) == newest
    (newest / file).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert newest_whole(folder) == older == folder.checkpoint
    assert "checkpoint-00000002 is damaged" in caplog.text and f"going on from {older.name}" in caplog.text
    assert not (older / FINAL_MARK).exists()
    [aside] = folder.damaged
    assert (aside.name, (aside / file).read_bytes()) == ("checkpoint-00000002.damaged", content)
    assert checkpoint(folder).name == "checkpoint-00000003"


def test_the_last_damaged_ones_are_kept(folder: SwarmFolder) -> None:
    """A disk that damages each checkpoint is not filled with them."""
    assert newest_whole(folder) is None
    for _ in range(CHECKPOINTS_KEPT + 2):
        (checkpoint(folder) / REPLICA_FILE).write_bytes(b"")
        assert newest_whole(folder) is None
    assert [path.name for path in folder.damaged] == [f"checkpoint-0000000{n}.damaged" for n in (3, 4)]


@pytest.mark.usefixtures("nothing_left")
def test_a_first_peer_does_not_begin_again_by_itself(tmp_path: Path) -> None:
    """With all its checkpoints damaged it says so, each time, instead of going back to round 0."""
    manifest = tiny_manifest(hashlib.sha256(TOKENIZER).hexdigest())

    def create() -> Swarm:
        parameters = GPT(manifest.model).parameters()
        return Swarm.create(manifest, TOKENIZER, parameters, tmp_path, settings("bootstrap"))

    create().close()
    [only] = tmp_path.glob("*/checkpoint-*")
    (only / REPLICA_FILE).write_bytes(b"")
    for _ in range(2):
        with pytest.raises(
            CheckpointError,
            match=r"all checkpoints are damaged; .* remove checkpoint-00000001\.damaged to begin",
        ):
            create()
