import subprocess
import sys

import pytest

from dupt_swarm.node.run_folder import RunFolder


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


def test_the_next_one_removes_what_a_power_cut_left(temporary) -> None:
    """A folder whose owner is gone is removed; one in use and what is not ours stay."""
    code = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from dupt_swarm.node.run_folder import RunFolder\n"
        "print(RunFolder().path, flush=True); os._exit(1)"
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
