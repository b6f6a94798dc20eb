"""Series of runs, each a line of JSON, that can be stopped and gone on with; and tables of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Run = dict[str, Any]
"""What makes a run another one, and what came of it."""


def read(file: Path) -> list[Run]:
    """The runs in ``file``, which need not be there."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def run_once(file: Path, about: Run, make: Callable[[], Run]) -> None:
    """Add what ``make`` finds to ``file``, unless that has a run ``about`` the same."""
    if any(about.items() <= line.items() for line in read(file)):
        return
    found = about | make()
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(found) + "\n")


def mean_of(values: Sequence[float]) -> str:
    """The mean, and if there are several values their standard deviation."""
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{spread}"


def row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
