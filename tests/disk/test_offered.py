"""Files of a swarm's offer on this machine."""

import os
from pathlib import Path

from dupt_swarm.disk.offered import OfferedFolder

NAMES = [f"{number:064x}" for number in range(4)]


def fill(path: Path) -> OfferedFolder:
    """Four files, the last one the oldest, and something else."""
    path.mkdir()
    for age, name in enumerate(NAMES):
        (path / name).write_bytes(bytes(100))
        os.utime(path / name, (1e9 - age, 1e9 - age))
    (path / ".part.1.tmp").write_bytes(b"half")
    return OfferedFolder(path, most=500)


def test_files_come_by_age(tmp_path: Path) -> None:
    """What was used longest ago is first; reading is using, and what is no digest is no file of the offer."""
    folder = fill(tmp_path / "offer")
    assert [*folder.sizes] == [*reversed(NAMES)]
    assert folder.read(NAMES[3]) == bytes(100)
    assert [*folder.sizes] == [NAMES[2], NAMES[1], NAMES[0], NAMES[3]]


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """Until something is fetched."""
    folder = OfferedFolder(tmp_path / "offer", most=10)
    assert folder.sizes == {}
    assert folder.read(NAMES[0]) is None
    folder.remove(NAMES[0])
    folder.shrink(lambda: False)
    assert not folder.problem(10)
    assert "10 bytes at most" in folder.problem(11)


def test_it_shrinks_until_it_fits(tmp_path: Path) -> None:
    """The oldest go first, without those to keep; what is enough is enough."""
    folder = fill(tmp_path / "offer")
    assert not folder.problem(100)
    assert folder.problem(101)
    folder.shrink(lambda: not folder.problem(200), keep=[NAMES[3]])
    assert {*folder.sizes} == {NAMES[0], NAMES[1], NAMES[3]}
    folder.pinned = frozenset((NAMES[0],))
    folder.shrink(lambda: False, keep=[NAMES[1]])
    assert {*folder.sizes} == {NAMES[0], NAMES[1]}
