"""node.log: the story of a node, one line per event, in a file that does not grow without end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dupt_swarm.command_line.printable import one_line, printable
from dupt_swarm.node.messages import LogLine

LOG_BYTES_MAX = 4 << 20
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS, HIVEMINDS = "dupt_swarm", "hivemind"


def tell_story(tell: Callable[[object], None]) -> None:
    """Log what we have to say from INFO on, and others' warnings; ``tell`` gets a `LogLine` of ours each."""
    logging.basicConfig(format=FORMAT)
    for handler in (*logging.getLogger().handlers, *logging.getLogger(HIVEMINDS).handlers):
        handler.setFormatter(PlainLines(FORMAT))  # hivemind has a handler and a level of its own
    logger = logging.getLogger(OURS)
    logger.setLevel(logging.INFO)
    logger.addHandler(_Teller(tell))


class PlainLines(logging.Formatter):
    """Each message on one line without control characters: much of what is logged, strangers have written.

    They neither make a terminal obey nor forge a line; only the lines of a traceback are several.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """As inherited."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """As inherited."""
        return printable(super().formatException(ei))


class LogFile:
    """All that this process and its daemon print from now on, appended to a file.

    A file that is larger than `LOG_BYTES_MAX` is renamed to ``….1``, over the one that had that name; where
    the disk is too full for a new one, it is emptied.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
            path.replace(self._older)
        self._open()

    def rotate(self) -> None:
        """Go on in a new file if this one is too large; to be called now and then."""
        if os.fstat(2).st_size <= LOG_BYTES_MAX:
            return
        try:
            with contextlib.suppress(FileNotFoundError):  # a new one could not be opened the last time
                self._path.replace(self._older)
            self._open()
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(2, 0)
            logging.getLogger(__name__).warning("what the log said before is lost: %s", error)

    @property
    def _older(self) -> Path:
        return self._path.with_name(f"{self._path.name}.1")

    def _open(self) -> None:
        with self._path.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)


class _Teller(logging.Handler):
    """Passes each line on to the parent process, which shows it if the user wants to see it."""

    def __init__(self, tell: Callable[[object], None]) -> None:
        super().__init__(logging.INFO)
        self._tell, self._loop, self._thread = tell, asyncio.get_running_loop(), threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        line = LogLine(one_line(record.getMessage()))
        if threading.get_ident() == self._thread:
            self._tell(line)  # before the reply of the command that it is about
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended: so has the parent's interest
            self._loop.call_soon_threadsafe(self._tell, line)
