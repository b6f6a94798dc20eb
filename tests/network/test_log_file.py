import asyncio
import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dupt_swarm.network import log_file
from dupt_swarm.network.log_file import OURS, LogFile, tell_story
from dupt_swarm.node.messages import LogLine


@pytest.fixture
def output_as_before() -> Iterator[None]:
    """Gives this process its own output and loggers back."""
    kept = [os.dup(fd) for fd in (1, 2)]
    handlers = logging.getLogger(OURS).handlers[:]
    yield
    for fd, copy in zip((1, 2), kept, strict=True):
        os.dup2(copy, fd)
        os.close(copy)
    logging.getLogger(OURS).handlers[:] = handlers
    logging.getLogger(OURS).setLevel(logging.NOTSET)


@pytest.mark.usefixtures("output_as_before")
def test_the_log_is_bounded(tmp_path: Path, monkeypatch) -> None:
    """What is printed is appended; a file that has grown too large is kept as the one before, once."""
    monkeypatch.setattr(log_file, "LOG_BYTES_MAX", 10)
    path, older = tmp_path / "node.log", tmp_path / "node.log.1"
    path.write_text("of the last run, long\n")
    log = LogFile(path)
    assert older.read_text() == "of the last run, long\n"
    os.write(2, b"short\n")
    log.rotate()
    assert path.read_text() == "short\n"
    os.write(1, b"now too long\n")
    log.rotate()
    os.write(2, b"new\n")
    assert older.read_text() == "short\nnow too long\n"
    assert path.read_text() == "new\n"


@pytest.mark.usefixtures("output_as_before")
def test_a_disk_that_was_full(tmp_path: Path, monkeypatch) -> None:
    """While there is no room for a new file, the one that is there is emptied; then all is as before."""
    monkeypatch.setattr(log_file, "LOG_BYTES_MAX", 100)
    path, older = tmp_path / "node.log", tmp_path / "node.log.1"

    def full(_: LogFile) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = LogFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "_open", full)
        for _ in range(3):
            os.write(2, b"x" * 101)
            log.rotate()
            assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 100
    os.write(1, b"y" * 101)
    log.rotate()
    os.write(2, b"new\n")
    assert (path.read_bytes(), older.read_bytes()) == (b"new\n", b"y" * 101)


@pytest.mark.usefixtures("output_as_before")
def test_a_small_log_goes_on(tmp_path: Path) -> None:
    """The log of a node that is started again follows that of the one before."""
    path = tmp_path / "node.log"
    path.write_text("before\n")
    LogFile(path).rotate()
    os.write(2, b"after\n")
    assert path.read_text() == "before\nafter\n"


@pytest.mark.usefixtures("output_as_before")
async def test_our_lines_are_told() -> None:
    """Our lines from INFO on reach the parent, from whatever thread; details and others' chatter do not."""
    told: list[object] = []
    tell_story(told.append)
    ours = logging.getLogger(f"{OURS}.network.participant")
    ours.info("round %d averaged", 3)
    ours.debug("a detail")
    logging.getLogger("somebody.else").warning("chatter")
    await asyncio.to_thread(ours.warning, "from a thread")
    await asyncio.sleep(0)
    assert told == [LogLine("round 3 averaged"), LogLine("from a thread")]


def test_what_strangers_write_forges_no_line(tmp_path: Path) -> None:
    """No escape and no line break gets into the file: only tracebacks have several lines."""
    evil = "\x1b[2J\x9b31m\u202e\n2026-01-01 INFO dupt_swarm: all is well"
    program = f"""
import asyncio, logging
from pathlib import Path
from dupt_swarm.network.log_file import LogFile, tell_story
import hivemind

LogFile(Path({str(tmp_path / "node.log")!r}))

async def story() -> None:
    tell_story(lambda event: None)
    for name in ("dupt_swarm", "somebody.else", "hivemind.p2p"):
        logging.getLogger(name).error("%s said %s", "eve", {evil!r})
    try:
        raise ValueError({evil!r})
    except ValueError:
        logging.getLogger("dupt_swarm").exception("it failed")

asyncio.run(story())
"""
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        timeout=60,
        env=os.environ | {"HIVEMIND_LOGLEVEL": "INFO"},
    )
    text = (tmp_path / "node.log").read_text()
    assert text.count("eve said �[2J�31m� 2026-01-01 INFO dupt_swarm: all is well") == 3
    assert not set("\x1b\x9b\u202e") & set(text)
    forged = [line for line in text.splitlines() if line.startswith("2026-01-01")]
    assert len(forged) == 1 and text.index("Traceback") < text.index(f"\n{forged[0]}")


@pytest.mark.usefixtures("output_as_before")
async def test_what_strangers_write_is_told_in_one_line() -> None:
    """The parent shows it to whoever sits there."""
    told: list[object] = []
    tell_story(told.append)
    logging.getLogger(OURS).warning("eve said %s", "\x1b[2J\nhello")
    assert told == [LogLine("eve said �[2J hello")]
