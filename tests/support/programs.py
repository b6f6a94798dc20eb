"""Starting our programs as people do, for tests."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.warm import Program

BIN = Path(sys.executable).parent
LISTEN = ("--host-maddrs", "/ip4/127.0.0.1/tcp/0")
# An oracle that is alone says a line for each round, which nobody reads meanwhile: a full pipe stops it.
PIPE_BYTES = 1 << 20
LINE_SECONDS = 240.0  # within which a program says what a test waits for, on a busy machine too


def dupt_peer(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return _run("dupt-peer", *arguments, **environment)


def dupt_model(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return _run("dupt-model", *arguments, **environment)


def run_python(*arguments: str, seconds: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python to its end, with other ``options`` of `subprocess.Popen`."""
    command, pipe = [sys.executable, *arguments], subprocess.PIPE
    return _end(Program(command, stdout=pipe, stderr=pipe, text=True, **options), seconds)


def _run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    pipe = subprocess.PIPE
    return _end(start(*arguments, popen=Program, program=program, stderr=pipe, **environment), 300)


def _end(started: subprocess.Popen[str], seconds: float) -> subprocess.CompletedProcess[str]:
    with started as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def start(
    *arguments: str,
    popen: type[subprocess.Popen[Any]] = Program,
    program: str = "dupt-peer",
    stderr: int = subprocess.PIPE,
    **environment: str,
) -> subprocess.Popen[str]:
    """Start it, and let it run; ``popen`` is `subprocess.Popen` where the start itself matters."""
    process = popen(
        [str(BIN / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=os.environ | environment,
    )
    if sys.platform == "linux" and process.stderr is not None:
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


@contextmanager
def first_peer(manifest: Path, state: Path) -> Iterator[dict[str, Any]]:
    """``dupt-peer bootstrap`` until the block ends: what it says, its ``address`` and its ``process``."""
    process = start("bootstrap", str(manifest), *LISTEN, "--state-dir", str(state), "--json")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the first peer did not start: {process.communicate(timeout=15)}"
        about = json.loads(line)
        yield about | {"address": about["addresses"][0], "process": process}
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read its stderr until a line has ``text``.

    Raises:
        AssertionError: it ended without, or took so long that it was killed.
    """
    assert process.stderr is not None
    seen = []
    too_long = threading.Timer(LINE_SECONDS, process.kill)
    too_long.start()
    try:
        for line in process.stderr:
            seen.append(line)
            if text in line:
                return
    finally:
        too_long.cancel()
    raise AssertionError(f"it ended without saying {text!r}: {''.join(seen)}")
