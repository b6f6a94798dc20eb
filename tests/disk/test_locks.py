"""Which process has a file or folder for itself."""

import os
import threading
from pathlib import Path

import pytest

from dupt_swarm.disk.locks import lock_file


def test_one_at_a_time(tmp_path: Path) -> None:
    """The second is told at once, and has it when the first has closed it."""
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        assert lock_file(first) is True
        assert lock_file(second) is False
        first.close()
        assert lock_file(second) is True


def test_whoever_waits_gets_it(tmp_path: Path) -> None:
    """Also of a folder, and not before the other has closed it."""
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert lock_file(first) is True
    got: list[bool | None] = []
    waiting = threading.Thread(target=lambda: got.append(lock_file(second, wait=True)))
    waiting.start()
    waiting.join(0.1)
    assert got == []
    os.close(first)
    waiting.join()
    assert got == [True]
    os.close(second)


@pytest.mark.usefixtures("without_locks")
@pytest.mark.parametrize("wait", [False, True])
def test_where_there_are_no_locks(tmp_path: Path, wait: bool) -> None:
    """Nobody has it, as far as anybody can tell."""
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        assert lock_file(first, wait=wait) is lock_file(second, wait=wait) is None
