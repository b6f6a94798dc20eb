"""CSV with a header."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.labelled.tables.opening import open_text
from dupt_swarm.learning.labelled.tables.row import Row, check_columns


def read_csv(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The rows of a table whose first line names its columns; empty lines are passed over.

    Raises:
        CorpusError: a column is missing, or a row is not valid CSV.
    """
    csv.field_size_limit(sys.maxsize)  # else 128 kB
    with open_text(path) as stream:
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
