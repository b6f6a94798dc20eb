"""Streams that bear what they cannot show, and a terminal that is gone."""

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
    nobody can read.
    """
    codecs.register_error("spelt", _spell)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue  # somebody has put another in its place
        if stream.errors in ("strict", "surrogateescape"):  # others refuse nothing
            stream.reconfigure(errors="spelt")
        if stream.isatty():
            terminal = io.BufferedWriter(_Terminal(stream.fileno(), "w", closefd=False))
            lasting = io.TextIOWrapper(terminal, stream.encoding, stream.errors, line_buffering=True)
            setattr(sys, name, lasting)


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(SPELT.get(one, "?") for one in error.object[error.start : error.end]), error.end


class _Terminal(io.FileIO):
    """Passes over what is written once it has been closed."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return len(data)
