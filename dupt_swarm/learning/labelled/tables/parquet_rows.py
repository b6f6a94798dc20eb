"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from dupt_swarm.learning.labelled.tables.row import Row, check_columns
from dupt_swarm.learning.reading import read_parquet_rows


def read_parquet(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The rows of a table.

    Raises:
        CorpusError: it is damaged or lacks a column, or pyarrow is not installed.
    """
    for number, _, cells in read_parquet_rows(path, wanted, partial(check_columns, str(path), wanted)):
        yield Row(f"{path}: row {number}", cells)
