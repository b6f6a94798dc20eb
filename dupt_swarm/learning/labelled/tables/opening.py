"""Text files that may be compressed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dupt_swarm.learning.reading import decompressed


@contextmanager
def open_text(path: Path) -> Iterator[io.TextIOWrapper]:
    """A UTF-8 file with its line ends as they are, unpacked if its name ends in .gz."""
    with (
        path.open("rb") as raw,
        io.TextIOWrapper(decompressed(path, raw), encoding="utf-8-sig", newline="") as stream,
    ):
        yield stream
