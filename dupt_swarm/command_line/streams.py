"""Streams that bear what they cannot show, a terminal that is gone, and a log whose disk is full."""

from __future__ import annotations

import codecs
import errno
import io
import sys
from typing import Any

SPELT = {"✓": "+", "✗": "x", "–": "-", "…": "...", "→": "->"}  # of which each means something


def prepare_streams() -> None:
    """Have stdout and stderr show what their encoding lacks as `SPELT` or ``?``, and outlast the terminal.

    A program that goes on to save what it has, or whose owner lets it go on, shall not fail at a line that
    nobody can read. Nor at a message for a log that has no room: data on stdout are another matter.
    """
    codecs.register_error("spelt", _spell)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue  # somebody has put another in its place
        if stream.errors in ("strict", "surrogateescape"):  # others refuse nothing
            stream.reconfigure(errors="spelt")
        is_file = isinstance(stream.buffer, io.BufferedWriter | io.FileIO)
        if stream.isatty() or (name == "stderr" and is_file):
            buffer = io.BufferedWriter(_Lasting(stream.fileno(), "w", closefd=False))
            lasting = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, lasting)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(SPELT.get(one, "?") for one in error.object[error.start : error.end]), error.end


class _Lasting(io.FileIO):
    """Passes over what is written once the terminal has been closed, and while the disk is full."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                raise
            return len(data)
