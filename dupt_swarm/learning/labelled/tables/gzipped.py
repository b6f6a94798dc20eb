"""Text files that may be compressed."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dupt_swarm.errors import CorpusError


@contextmanager
def open_text(path: Path) -> Iterator[io.TextIOWrapper]:
    """A UTF-8 file with its line ends as they are, unpacked if its name ends in .gz.

    Raises:
        CorpusError: it is damaged or no UTF-8, found out while it is read.
    """
    try:
        with path.open("rb") as raw:
            plain = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
            with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as stream:
                yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{path}: damaged gzip file: {error}; fetch it again") from error
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 text: {error.reason}; convert it to UTF-8") from error
