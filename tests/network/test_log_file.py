import asyncio
import logging
import os
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
def test_a_small_log_goes_on(tmp_path: Path) -> None:
    """The log of a node that is started again follows that of the one before."""
    path = tmp_path / "node.log"
    path.write_text("before\n")
    LogFile(path).rotate()
    os.write(2, b"after\n")
    assert path.read_text() == "before\nafter\n"


@pytest.mark.usefixtures("output_as_before")
def test_our_lines_are_told() -> None:
    """Our lines from INFO on reach the parent, from whatever thread; details and others' chatter do not."""
    told: list[object] = []

    async def scenario() -> None:
        tell_story(told.append)
        ours = logging.getLogger(f"{OURS}.network.participant")
        ours.info("round %d averaged", 3)
        ours.debug("a detail")
        logging.getLogger("somebody.else").warning("chatter")
        await asyncio.to_thread(ours.warning, "from a thread")
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert told == [LogLine("round 3 averaged"), LogLine("from a thread")]
