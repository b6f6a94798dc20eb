"""Where a peer keeps its state."""

import errno
import os
import stat
from pathlib import Path

import pytest

from dupt_swarm.disk.folders import CHECKPOINTS_KEPT, SwarmFolder, is_in_use, kept_invitation
from dupt_swarm.errors import CheckpointError, UsageError


@pytest.fixture
def folder(tmp_path):
    """A locked folder of a swarm."""
    folder = SwarmFolder(tmp_path, "s-0123456789ab")
    yield folder
    folder.close()


def test_paths(tmp_path, folder) -> None:
    """Everything lies in one sub-folder per swarm."""
    home = tmp_path / "s-0123456789ab"
    assert folder.path == home
    assert {folder.identity.parent, folder.log.parent, folder.tokens.parent} == {home}


def test_nobody_else_looks_into_it(folder) -> None:
    """The tokens in it are the owner's corpus."""
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_second_peer_is_refused(tmp_path, folder) -> None:
    """A second peer in the same folder is refused with the remedy, and let in when the first has gone."""
    with pytest.raises(
        UsageError, match=r"another oracle of this swarm uses this folder; .* of its own"
    ) as caught:
        SwarmFolder(tmp_path, "s-0123456789ab")
    assert caught.value.settings == ("state_dir",)
    other = SwarmFolder(tmp_path, "s-ba9876543210")
    other.close()
    folder.close()
    SwarmFolder(tmp_path, "s-0123456789ab").close()


@pytest.mark.usefixtures("without_locks")
def test_a_disk_without_locks_is_refused(tmp_path) -> None:
    """Two peers with one identity would ruin each other's; no peer is taken to be there."""
    with pytest.raises(UsageError, match="no locks; choose a folder on another disk for its state") as caught:
        SwarmFolder(tmp_path, "s-0123456789ab")
    assert caught.value.settings == ("state_dir",)
    assert not is_in_use(tmp_path / "s-0123456789ab")


@pytest.mark.usefixtures("folder")
def test_each_role_has_a_folder_of_its_own(tmp_path) -> None:
    """An organiser's bootstrap and evaluator run beside an oracle; two of one role do not."""
    for role in ("bootstrap", "evaluator"):
        other = SwarmFolder(tmp_path, "s-0123456789ab", role)
        assert other.path == tmp_path / f"s-0123456789ab.{role}"
        with pytest.raises(UsageError, match=f"another {role} of this swarm"):
            SwarmFolder(tmp_path, "s-0123456789ab", role)
        other.close()


def test_unusable_state_dir(tmp_path) -> None:
    """A state folder that cannot be made is a usage error with the remedy."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match=r"cannot be written.*choose another folder"):
        SwarmFolder(tmp_path / "file", "s")


def test_shared_files(folder) -> None:
    """Manifest and tokenizer are kept as given; before that there is no tokenizer."""
    assert folder.tokenizer == b""
    folder.save_shared(b"{}", b"tokens")
    assert (folder.path / "manifest.json").read_bytes() == b"{}"
    assert folder.tokenizer == b"tokens"


def test_checkpoints_are_numbered_and_old_ones_removed(folder) -> None:
    """Each checkpoint becomes the newest, and only the last few stay."""
    assert folder.checkpoint is None
    for number in range(1, CHECKPOINTS_KEPT + 3):
        with folder.new_checkpoint() as path:
            (path / "replica").write_text(str(number))
        assert folder.checkpoint is not None
        assert folder.checkpoint == folder.path / f"checkpoint-{number:08d}"
        assert (folder.checkpoint / "replica").read_text() == str(number)
    kept = sorted(path.name for path in folder.path.glob("*checkpoint*"))
    assert kept == ["checkpoint-00000003", "checkpoint-00000004"]


@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), CheckpointError),
        (CheckpointError("inside"), CheckpointError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_unfinished_checkpoint_counts_for_nothing(folder, problem, raised) -> None:
    """A checkpoint that was not finished, for whatever reason, leaves the one before as the newest."""
    with folder.new_checkpoint() as path:
        (path / "replica").write_text("whole")
    with pytest.raises(raised), folder.new_checkpoint() as path:
        (path / "replica").write_text("ha")
        raise problem
    assert folder.checkpoint == folder.path / "checkpoint-00000001"
    assert [path.name for path in folder.path.glob("*checkpoint*")] == ["checkpoint-00000001"]


def test_rest_of_a_crash_is_cleared(folder) -> None:
    """What a crash left of an unfinished checkpoint does not get into the next one."""
    (folder.path / ".checkpoint").mkdir()
    (folder.path / ".checkpoint" / "rest").write_text("rest")
    with folder.new_checkpoint() as path:
        (path / "replica").write_text("whole")
    assert [path.name for path in folder.checkpoint.iterdir()] == ["replica"]


def test_foreign_folders_are_left_alone(folder) -> None:
    """A folder that only looks like a checkpoint is neither read nor removed."""
    (folder.path / "checkpoint-mybackup").mkdir()
    (folder.path / "checkpoint-by-hand1").mkdir()
    with folder.new_checkpoint():
        pass
    assert folder.checkpoint == folder.path / "checkpoint-00000001"
    assert (folder.path / "checkpoint-mybackup").exists()


def test_a_checkpoint_in_a_hurry_is_the_newest_too(folder) -> None:
    """Whoever does not wait for the disk has a whole checkpoint all the same, and is asked only once."""
    asked = []

    def hurry(done, total) -> bool:
        asked.append((done, total))
        return False

    with folder.new_checkpoint(hurry) as path:
        (path / "oracle").write_text("own")
        (path / "replica").write_text("whole")
    assert folder.checkpoint == folder.path / "checkpoint-00000001"
    assert {path.name: path.read_text() for path in folder.checkpoint.iterdir()} == {
        "oracle": "own",
        "replica": "whole",
    }
    assert asked == [(0, 8)]


def test_a_checkpoint_is_durable_before_it_is_the_newest(folder, monkeypatch) -> None:
    """Its files first, then its name."""
    order = []
    fsync, rename = os.fsync, Path.rename

    def sync(fd: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def name(one: Path, other: Path) -> Path:
        order.append("name")
        return rename(one, other)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", name)
    with folder.new_checkpoint() as path:
        (path / "replica").write_text("whole")
    assert order == ["file", "name", "folder"]


def test_an_invitation_is_kept_for_its_owner(folder) -> None:
    """A peer that came by one needs it only once; nobody else can read it, and without one there is none."""
    folder.save_shared(b"{}", b"{}")
    assert kept_invitation(folder.path) == ""
    folder.save_shared(b"{}", b"{}", "dupt-secret")
    assert kept_invitation(folder.path) == "dupt-secret"
    assert stat.S_IMODE((folder.path / "invitation").stat().st_mode) == 0o600
