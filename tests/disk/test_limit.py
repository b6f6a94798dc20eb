"""How much disk a swarm's folder may take."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dupt_swarm.disk.folders import ORIGINS_FOLDER, SwarmFolder, limited
from dupt_swarm.disk.limit import DiskLimit, folder_bytes, format_bytes
from dupt_swarm.errors import CheckpointError, CorpusError, UsageError


@pytest.fixture
def swarm_folder(tmp_path: Path) -> Iterator[SwarmFolder]:
    """A locked folder of a swarm."""
    folder = SwarmFolder(tmp_path, "s-0123456789ab")
    yield folder
    folder.close()


def save(folder: SwarmFolder, size: int) -> None:
    """Write a checkpoint of so many bytes."""
    with folder.new_checkpoint() as path:
        (path / "replica").write_bytes(bytes(size))


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (2e10, "20.0 GB"), (5e15, "5000.0 TB")],
)
def test_amounts_are_written_in_decimal_units(amount: float, text: str) -> None:
    """With one decimal, as disks are sold."""
    assert format_bytes(amount) == text


def test_a_folder_takes_what_its_files_do(tmp_path: Path) -> None:
    """Files below count, each once whatever its names."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(1000))
    (tmp_path / "c").write_bytes(bytes(24))
    (tmp_path / "same").hardlink_to(tmp_path / "c")
    assert folder_bytes(tmp_path) == 1024
    assert folder_bytes(tmp_path / "nowhere") == 0


def test_folders_that_vanish_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an old checkpoint does while somebody looks how much is there."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "file").write_bytes(bytes(1000))
    is_file = Path.is_file

    def looked_at(path: Path) -> bool:
        for folder in folders:
            if folder != path.parent and path.parent in folders:
                shutil.rmtree(folder, ignore_errors=True)
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", looked_at)
    assert folder_bytes(tmp_path) == 1000


def test_a_folder_that_takes_more_already_is_refused(swarm_folder: SwarmFolder) -> None:
    """The message names both sizes and the option."""
    save(swarm_folder, 5000)
    with pytest.raises(UsageError, match=r"takes 5\.0 kB, more than the 4\.0 kB allowed; allow more"):
        swarm_folder.limit(4000)
    swarm_folder.limit(None)


def test_old_checkpoints_make_room_for_new_ones(swarm_folder: SwarmFolder) -> None:
    """Where there is no room for three checkpoints at once, one old one is kept instead of two."""
    swarm_folder.limit(2500)
    for _ in range(4):
        save(swarm_folder, 1000)
    assert [path.name for path in sorted(swarm_folder.path.glob("checkpoint-*"))] == [
        "checkpoint-00000003",
        "checkpoint-00000004",
    ]


def test_anchors_of_branches_make_room_for_a_checkpoint(swarm_folder: SwarmFolder) -> None:
    """They are a help where branches part; as long as there is room they stay."""
    origins = swarm_folder.path / ORIGINS_FOLDER
    origins.mkdir()
    (origins / "one").write_bytes(bytes(1000))
    swarm_folder.limit(2500)
    save(swarm_folder, 1000)
    assert origins.exists()
    save(swarm_folder, 1000)
    assert not origins.exists()


def test_a_checkpoint_without_room_leaves_the_one_before(swarm_folder: SwarmFolder) -> None:
    """It is an error that names the option, and what is there stays, whether foreseen or not."""
    save(swarm_folder, 1000)
    before, used = swarm_folder.checkpoint, folder_bytes(swarm_folder.path)
    swarm_folder.limit(1500)
    with pytest.raises(CheckpointError, match="allow more"):
        save(swarm_folder, 1000)
    swarm_folder.limit(3000)
    with pytest.raises(CheckpointError, match="allow more"):
        save(swarm_folder, 9000)  # larger than the one before, which nobody could know
    assert swarm_folder.checkpoint == before
    assert folder_bytes(swarm_folder.path) == used


def test_tokens_that_will_not_have_room_are_seen_early(swarm_folder: SwarmFolder) -> None:
    """After a tenth of the text the whole is known to be too much; what fits goes on, and is reported."""
    building = swarm_folder.tokens / "one.building"
    building.mkdir(parents=True)
    (building / "train-00000.bin").write_bytes(bytes(1000))
    calls = []
    progress = limited(swarm_folder, lambda done, total: calls.append((done, total)))
    swarm_folder.limit(20_000)
    progress(10, 100)
    swarm_folder.limit(5000)
    with pytest.raises(
        CorpusError, match=r"the rest of the tokens about 9\.0 kB, more than the 5\.0 kB allowed"
    ):
        progress(10, 100)
    assert calls == [(10, 100)]


def test_logs_do_not_count(swarm_folder: SwarmFolder) -> None:
    """What strangers make a peer write to its log, a few MB at most, leaves its checkpoints their room."""
    for name in ("node.log", "node.log.1"):
        (swarm_folder.path / name).write_bytes(bytes(5000))
    (swarm_folder.path / "other.log").write_bytes(bytes(100))
    limit = DiskLimit(swarm_folder.path, folder_bytes(swarm_folder.path) - 10_000)
    assert limit.problem(0, "nothing") == ""
    assert "allowed" in limit.problem(1, "a byte")
