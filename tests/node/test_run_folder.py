import os
import subprocess
import sys
import threading

import pytest

from dupt_swarm.node.link import RunFolder


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_removed_with_its_content(temporary) -> None:
    """Sockets and all; and again does no harm."""
    folder = RunFolder()
    (folder.path / "socket").touch()
    assert folder.path.parent == temporary
    folder.remove()
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_a_signal_in_the_middle_of_the_start_leaves_nothing(temporary) -> None:
    """It ends the program while the folder is being made, before anybody knows of it."""
    code = (
        "import fcntl, os, signal, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from dupt_swarm.node.link import RunFolder\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "fcntl.flock = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "RunFolder()"
    )
    command = [sys.executable, "-c", code, str(temporary)]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    assert list(temporary.iterdir()) == []


def test_the_next_one_removes_what_a_power_cut_left(temporary) -> None:
    """A folder whose owner is gone is removed; one in use and what is not ours stay."""
    code = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from dupt_swarm.node.link import RunFolder\n"
        "folder = RunFolder(); print(folder.path, flush=True); os._exit(1)"
    )
    command = [sys.executable, "-c", code, str(temporary)]
    left = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    assert [str(path) for path in temporary.iterdir()] == [left]
    (temporary / "dupt-of-somebody-else").mkdir()
    one = RunFolder()
    other = RunFolder()
    assert {path.name for path in temporary.iterdir()} == {
        one.path.name,
        other.path.name,
        "dupt-of-somebody-else",
    }
    one.remove()
    other.remove()


def test_what_others_put_there_neither_hangs_nor_is_removed(temporary, monkeypatch) -> None:
    """The folder for temporary files is everybody's: a pipe, a link or another user's lock is left alone."""
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "lock").touch()
    (temporary / "dupt-link").symlink_to(temporary / "elsewhere")
    (temporary / "dupt-fifo").mkdir()
    os.mkfifo(temporary / "dupt-fifo" / "lock")
    made: list[RunFolder] = []
    thread = threading.Thread(target=lambda: made.append(RunFolder()), daemon=True)
    thread.start()
    thread.join(10)
    assert len(made) == 1
    made[0].path.rename(theirs := temporary / "dupt-theirs")
    made[0].remove()  # no longer locked, and still there
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    RunFolder().remove()
    assert {path.name for path in temporary.iterdir()} == {"elsewhere", "dupt-link", "dupt-fifo", theirs.name}
    assert (temporary / "elsewhere" / "lock").exists()


@pytest.mark.usefixtures("without_locks")
def test_where_there_are_no_locks_nothing_is_swept(temporary) -> None:
    """A node starts there too, and leaves alone what another may use."""
    one = RunFolder()
    other = RunFolder()
    assert {path.name for path in temporary.iterdir()} == {one.path.name, other.path.name}
    one.remove()
    other.remove()
