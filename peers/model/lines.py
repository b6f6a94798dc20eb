"""What a command writes line by line: to stdout, or to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import UsageError


def check_apart(out: Path | None, file: Path) -> None:
    """What is written shall not take the place of what is read.

    Raises:
        UsageError: both are one file.
    """
    if out is not None and out.resolve() == file.resolve():
        raise UsageError(f"{out}: what it is to be made from would be lost; give another file", setting="out")


def write_lines(lines: Iterable[str], out: Path | None) -> None:
    """Write ``lines``, each with its end, to stdout, or to a file as a whole or not at all.

    Raises:
        FileError: the file cannot be written.
    """
    if out is None:
        sys.stdout.writelines(lines)
        return

    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as stream:
            stream.writelines(lines)

    write_atomically(out, write)
