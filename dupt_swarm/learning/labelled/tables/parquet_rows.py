"""Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.documents import MissingLibraryError
from dupt_swarm.learning.labelled.tables.row import Row, check_columns

ROWS_AT_ONCE = 256


def read_parquet(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The rows of a table.

    Raises:
        CorpusError: it is damaged or lacks a column, or pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise MissingLibraryError(
            f"{path}: reading Parquet needs pyarrow; `pip install dupt_swarm[parquet]`"
        ) from error
    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            check_columns(str(path), wanted, file.schema_arrow.names)
            number = 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(wanted)):
                for cells in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}: row {number}", cells)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}: not UTF-8 text: {error.reason}; convert it to UTF-8") from error
    except arrow.ArrowException as error:
        raise CorpusError(f"{path}: not valid Parquet: {error}; fetch it again") from error
