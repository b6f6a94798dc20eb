"""Losses as small curves in braille: each character has 2 × 4 dots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

BRAILLE = 0x2800
# Bits of a character's dots, [column][row from the top].
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
SCALE_WIDTH = 8


def curve(title: Text, values: Sequence[float], width: int, rows: int) -> list[Text]:
    """The title, and ``rows`` of curve with the highest and the lowest value beside it."""
    lines, values = [title], cut_off(values)
    drawn = braille(values, width - SCALE_WIDTH - 1, rows)
    for row, dots in enumerate(drawn):
        edge = {0: max, rows - 1: min}.get(row) if values else None
        scale = f"{edge(values):.3f}" if edge else ""
        lines.append(Text.assemble((f"{scale:>{SCALE_WIDTH - 1}} ", "dim"), (dots, "cyan")))
    return [_fitted(line, width) for line in lines]


def beside(left: Sequence[Text], right: Sequence[Text]) -> list[Text]:
    """Two blocks of equally many lines, one beside the other."""
    return [Text.assemble(one, other) for one, other in zip(left, right, strict=True)]


def braille(values: Sequence[float], columns: int, rows: int) -> list[str]:
    """``values`` from left to right over the whole width, the highest at the top.

    A constant series lies at the bottom.
    """
    points = resample(values, 2 * columns)
    cells = [[0] * columns for _ in range(rows)]
    low, high = min(points, default=0.0), max(points, default=0.0)
    top = 4 * rows - 1
    before = None
    for x, value in enumerate(points):
        y = round((high - value) / (high - low) * top) if high > low else top
        # Joined with the point before, so that a steep curve has no gaps.
        reached = y if before is None else before + (y > before) - (y < before)
        for dot in range(min(y, reached), max(y, reached) + 1):
            cells[dot // 4][x // 2] |= DOTS[x % 2][dot % 4]
        before = y
    return ["".join(chr(BRAILLE + cell) for cell in row) for row in cells]


def cut_off(values: Sequence[float]) -> list[float]:
    """``values``, none higher than the later nine tenths.

    A loss falls so fast at first that its beginning would flatten all that follows.
    """
    highest = max(values[len(values) // 10 :], default=0.0)
    return [min(value, highest) for value in values]


def resample(values: Sequence[float], points: int) -> list[float]:
    """``values`` as so many points: means where there are more of them, else straight lines between them."""
    if len(values) < 2:
        return list(values) * points
    if len(values) > points:
        edges = [len(values) * point // points for point in range(points + 1)]
        return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges)]
    found = []
    for point in range(points):
        place = point * (len(values) - 1) / (points - 1)
        before = min(int(place), len(values) - 2)
        found.append(values[before] + (values[before + 1] - values[before]) * (place - before))
    return found


def _fitted(line: Text, width: int) -> Text:
    line.truncate(width, pad=True)
    return line
