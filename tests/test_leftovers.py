"""What a test leaves behind is found, however it was started: else tests that look for it see nothing."""

import subprocess
import sys

import psutil
import pytest

from tests.support.leftovers import ours
from tests.support.warm import Program

ORPHAN = "import time; time.sleep(600)"
PARENT = (
    "import subprocess, sys; "
    f"print(subprocess.Popen([sys.executable, '-c', {ORPHAN!r}], start_new_session=True).pid)"
)


@pytest.mark.parametrize("popen", [Program, subprocess.Popen])
def test_a_process_whose_parent_is_gone_is_found(popen: type[subprocess.Popen[str]]) -> None:
    """It runs in a session of its own, and whoever started it has ended."""
    with popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphan = psutil.Process(int(parent.stdout.readline()))
    try:
        assert orphan in ours()
    finally:
        orphan.kill()
    psutil.wait_procs([orphan], timeout=30)
    assert orphan not in ours()


@pytest.mark.parametrize("popen", [Program, subprocess.Popen])
def test_a_program_itself_is_found(popen: type[subprocess.Popen[str]]) -> None:
    """Until it has ended."""
    with popen([sys.executable, "-c", ORPHAN]) as program:
        found = psutil.Process(program.pid)
        assert found in ours()
        program.kill()
        program.wait()
        assert found not in ours()
