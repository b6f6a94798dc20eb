"""Event loops tell of what was forgotten in them only by a line in the log, when the garbage is collected."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager


class LoopCount:
    """Counts the event loops that are made in this process."""

    def __init__(self) -> None:
        self.made = 0
        original = asyncio.events.new_event_loop

        def new_event_loop() -> asyncio.AbstractEventLoop:
            self.made += 1
            return original()

        asyncio.events.new_event_loop = asyncio.new_event_loop = new_event_loop


class Complaints(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))


LOOPS = LoopCount()


@contextmanager
def nothing_forgotten() -> Iterator[None]:
    """Whoever made an event loop has retrieved the results of all its tasks and futures.

    Raises:
        AssertionError: asyncio has complained; has its words.
    """
    complaints, made = Complaints(), LOOPS.made
    logger = logging.getLogger("asyncio")
    logger.addHandler(complaints)
    try:
        yield
        if LOOPS.made > made:  # collecting takes a moment, and most tests have no loop
            gc.collect()
    finally:
        logger.removeHandler(complaints)
    assert not complaints.lines, "asyncio complains: " + "\n".join(complaints.lines)
