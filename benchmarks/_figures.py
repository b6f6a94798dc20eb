"""Figures: processor time of work that takes turns, ratios, and tables of them in Markdown."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def seconds_of(work: Callable[[], object]) -> float:
    """Processor time of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def in_turns(arms: Mapping[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """Processor time of each arm's turns; a first turn of all warms up and does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(turns + 1):
        for name, arm in arms.items():
            seconds[name].append(seconds_of(arm))
    return {name: own[1:] for name, own in seconds.items()}


def rotated(arms: Iterable[T], turn: int) -> list[T]:
    """All arms, in each turn beginning with another one."""
    every = list(arms)
    first = turn % len(every)
    return every[first:] + every[:first]


def ratio(over: Sequence[float], under: Sequence[float], digits: int = 2) -> str:
    """Of figures that belong together, pair by pair; see `spread`."""
    return spread([a / b for a, b in zip(over, under, strict=True)], digits)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, minimum and maximum."""
    median, least, most = (f"{pick(values):.{digits}f}" for pick in (statistics.median, min, max))
    return f"{median} ({least}–{most})"


def mean_of(values: Sequence[float]) -> str:
    """The mean, and if there are several values their standard deviation."""
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


def row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def head(cells: Sequence[str]) -> str:
    """The two lines that a table begins with."""
    return f"{row(cells)}\n{row(['---'] * len(cells))}"
