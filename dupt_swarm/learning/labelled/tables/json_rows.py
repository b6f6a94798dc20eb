"""JSON lines: an object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.labelled.tables.opening import open_text
from dupt_swarm.learning.labelled.tables.row import Row, check_columns


def read_json_lines(path: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """The objects of a file; empty lines are passed over.

    Raises:
        CorpusError: a line is no JSON object, or lacks a column.
    """
    with open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                where = f"{path}:{number}"
                cells = _object(line, where)
                check_columns(where, wanted, cells)
                yield Row(where, {name: cells[name] for name in wanted})


def _object(line: str, where: str) -> dict[str, object]:
    try:
        cells = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not valid JSON: {error}; fix or remove that line") from error
    if not isinstance(cells, dict):
        raise CorpusError(f"{where}: not a JSON object but {type(cells).__name__}; fix or remove that line")
    return cells
