"""Reading files that somebody else has written: compressed, damaged, or not what their names say."""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from dupt_swarm.errors import CorpusError, install

PARQUET_ROWS = 256
LINE_MAX = 1 << 26
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2"}


class MissingLibraryError(CorpusError):
    """A library that reads files of this kind is not installed."""


class InaccessibleError(CorpusError):
    """The file cannot be read now, for reasons that are none of its content: permissions, or the disk."""


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """What goes wrong while ``path`` is read in this block becomes an error that names the remedy.

    Raises:
        CorpusError: it cannot be read, is damaged, or no UTF-8.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    except (EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    except OSError as error:
        # Without a number it comes from what unpacks the file, not from the system.
        if error.errno is None and path.suffix.lower() in COMPRESSIONS:
            raise _damaged(path, error) from error
        raise InaccessibleError(
            f"{error.filename or path}: cannot be read: {error.strerror or error}; "
            "check its permissions and the disk, or leave it out"
        ) from error


def _not_utf8(where: Path | str, error: UnicodeDecodeError) -> CorpusError:
    """What to say of bytes that are not UTF-8."""
    return CorpusError(f"{where}: not UTF-8 text: {error.reason}; convert it to UTF-8 or remove it")


def _damaged(path: Path, error: Exception) -> CorpusError:
    kind = COMPRESSIONS.get(path.suffix.lower(), "compressed")
    return CorpusError(f"{path}: damaged {kind} file: {error}; fetch it again or remove it")


def decompressed(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """The content of the open file ``raw``, unpacked if its name ends in .gz or .bz2.

    Files that were compressed one by one and then joined, as Wikipedia's multistream dumps, are one content.
    """
    match path.suffix.lower():
        case ".gz":
            return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
        case ".bz2":
            return bz2.BZ2File(raw)
    return raw


class JsonRow(NamedTuple):
    """A line of JSON: its place for messages, its cells, and how much of the file was read, in bytes."""

    where: str
    cells: dict[str, Any]
    position: int


def read_json_rows(path: Path) -> Iterator[JsonRow]:
    """The objects of a file, one in each line; empty lines are passed over.

    Raises:
        CorpusError: a line is no JSON object, is not UTF-8, or has more than `LINE_MAX` bytes.
    """
    with path.open("rb") as raw:
        stream, number = decompressed(path, raw), 0
        while line := stream.readline(LINE_MAX + 1):
            number += 1
            where = f"{path}:{number}"
            if len(line) > LINE_MAX:
                raise CorpusError(
                    f"{where}: the line is longer than {LINE_MAX >> 20} MiB; if the file is one JSON array, "
                    "write each of its objects into a line of its own"
                )
            try:
                text = line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise _not_utf8(where, error) from error
            if text.strip():
                yield JsonRow(where, _json_object(text, where), raw.tell())


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not valid JSON: {error}; fix or remove that line") from error
    if not isinstance(found, dict):
        raise CorpusError(f"{where}: not a JSON object but {type(found).__name__}; fix or remove that line")
    return found


class ParquetRow(NamedTuple):
    """A row of a Parquet file: its number from 1, of how many, and its cells by column."""

    number: int
    total: int
    cells: dict[str, Any]


def read_parquet_rows(
    path: Path, columns: Sequence[str], check: Callable[[Sequence[str]], None]
) -> Iterator[ParquetRow]:
    """The rows of a file, only ``columns`` of them; ``check`` sees first which there are, and may raise.

    Raises:
        CorpusError: it is damaged.
        MissingLibraryError: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingLibraryError(f"{path}: reading Parquet needs pyarrow; {install('parquet')}") from error
    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            check(file.schema_arrow.names)
            number = 0
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=list(columns)):
                for cells in batch.to_pylist():
                    number += 1
                    yield ParquetRow(number, file.metadata.num_rows, cells)
    except (arrow.ArrowException, OSError) as error:
        # As `reported` does: one with a number comes from the system.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CorpusError(f"{path}: not valid Parquet: {error}; fetch it again or remove it") from error


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for half a surrogate pair, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
