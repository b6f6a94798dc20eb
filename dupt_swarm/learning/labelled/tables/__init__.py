"""Tables with named columns, a row at a time.

csv_rows        .csv with a header
json_rows       .jsonl: an object on each line
parquet_rows    .parquet
row             what they all give
opening         files that may be compressed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dupt_swarm.learning.labelled.tables.csv_rows import read_csv
from dupt_swarm.learning.labelled.tables.json_rows import read_json_lines
from dupt_swarm.learning.labelled.tables.parquet_rows import read_parquet
from dupt_swarm.learning.labelled.tables.row import Row

READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]] = {
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".jsonl": read_json_lines,
    ".jsonl.gz": read_json_lines,
    ".parquet": read_parquet,
}
