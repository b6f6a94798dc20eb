"""What a command writes line by line: to stdout, or to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from dupt_swarm.disk.files import write_atomically


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
