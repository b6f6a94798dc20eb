"""Tables with named columns, a row at a time: CSV with a header, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.reading import decompressed, read_json_rows, read_parquet_rows


class Row(NamedTuple):
    """The cells of the columns asked for.

    Attributes:
        where: file and line, for messages.
        cells: by the table's own names.
    """

    where: str
    cells: dict[str, object]


def check_columns(where: str, wanted: Sequence[str], there: Iterable[str]) -> None:
    """See that all ``wanted`` columns are there.

    Raises:
        CorpusError: names those that are missing, and those that are there.
    """
    names = [str(name) for name in there]
    if missing := [name for name in wanted if name not in names]:
        raise CorpusError(
            f"{where}: there is no column {', '.join(f'`{name}`' for name in missing)}: it has "
            f"{', '.join(f'`{name}`' for name in names) or 'none'}; say which column is which",
            setting="columns",
        )


def read_csv(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The rows of a table whose first line names its columns; empty lines are passed over.

    Raises:
        CorpusError: a column is missing, or a row is not valid CSV.
    """
    csv.field_size_limit(sys.maxsize)  # else 128 kB
    with (
        path.open("rb") as raw,
        io.TextIOWrapper(decompressed(path, raw), encoding="utf-8-sig", newline="") as stream,
    ):
        rows = csv.reader(stream, strict=True)
        try:
            header = next(rows, None)
            if header is None:
                raise CorpusError(f"{path}: the file is empty; it needs a header and rows")
            check_columns(str(path), wanted, header)
            columns = {name: header.index(name) for name in wanted}
            for cells in rows:
                if not cells:
                    continue
                where = f"{path}:{rows.line_num}"
                if len(cells) != len(header):
                    raise CorpusError(
                        f"{where}: the row has {len(cells)} cells and the header {len(header)}; "
                        "put texts with commas between double quotes"
                    )
                yield Row(where, {name: cells[column] for name, column in columns.items()})
        except csv.Error as error:
            raise CorpusError(f"{path}:{rows.line_num}: not valid CSV: {error}; fix that line") from error


def read_json_lines(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The objects of a file; empty lines are passed over.

    Raises:
        CorpusError: a line is no JSON object, or lacks a column, or is too long.
    """
    for where, cells, _ in read_json_rows(path):
        check_columns(where, wanted, cells)
        yield Row(where, {name: cells[name] for name in wanted})


def read_parquet(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The rows of a table.

    Raises:
        CorpusError: it is damaged or lacks a column, or pyarrow is not installed.
    """
    for number, _, cells in read_parquet_rows(path, wanted, partial(check_columns, str(path), wanted)):
        yield Row(f"{path}: row {number}", cells)


READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".jsonl": read_json_lines,
    ".jsonl.gz": read_json_lines,
    ".parquet": read_parquet,
}
