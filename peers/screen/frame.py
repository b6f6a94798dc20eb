"""The panel's content: lines of text that fill a terminal of any size, and never more than that.

In its middle are losses as small curves in braille, whose characters have 2 × 4 dots each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from peers.screen import events, words
from peers.screen.facts import Facts

CURVE_ROWS_MIN, CURVE_ROWS = 2, 6
EVENTS_MIN = 4
LABEL_WIDTH = 10
BRAILLE = 0x2800
# Bits of a character's dots, [column][row from the top].
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
SCALE_WIDTH = 8


def frame(facts: Facts, width: int, height: int) -> list[Text]:
    """At most ``height`` lines of exactly ``width`` cells.

    On a low terminal the curves go first, then the events; on a high one both get more.
    """
    rule = Text("─" * width, style="dim")
    lines = [*_header(facts, width), rule, *_numbers(facts), rule]
    left = height - len(lines)
    rows = min(left - 2 - EVENTS_MIN, max(CURVE_ROWS, left // 2))
    if rows >= CURVE_ROWS_MIN:
        lines += [*_curves(facts, width, rows), rule]
    lines += events.render(facts.events, height - len(lines))
    return [_fitted(line, width) for line in lines[:height]]


def _header(facts: Facts, width: int) -> list[Text]:
    """Two lines: swarm, peer and state; model, device and corpus."""
    about, status = facts.about, facts.status
    doing = words.state(status).partition(" (")[0] if status.state == "paused" else str(status.activity)
    left = Text.assemble((f" {about.manifest.swarm_id}", "bold cyan"), ("  as ", "dim"), one_line(about.name))
    right = Text(f"{doing} ", style="bold")
    left.truncate(max(0, width - right.cell_len - 1), overflow="ellipsis")
    left.append(" " * (width - left.cell_len - right.cell_len))
    what = f" {about.model}  ·  {one_line(about.device)}  ·  {one_line(about.corpus)}"
    return [Text.assemble(left, right), Text(what, style="dim")]


def _numbers(facts: Facts) -> list[Text]:
    """Where the round stands, and the facts with a label."""
    full = (words.bar(facts.status.progress.ratio), "cyan")
    return [
        _line(f"round {facts.status.round}", full, f" {facts.round_full:>5}  {facts.round_end}"),
        *(_line(label, text) for label, text in facts.by_label().items()),
    ]


def _line(label: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble((f" {label:<{LABEL_WIDTH}}", "dim"), *parts)


def _curves(facts: Facts, width: int, rows: int) -> list[Text]:
    half = width // 2
    latest = facts.status.latest
    loss = Text.assemble((" loss ", "dim"), (words.number(facts.status.loss), "bold"))
    held_out = Text.assemble(
        (" held-out ", "dim"), (words.number(latest.loss_nats if latest else None), "bold")
    )
    if latest is not None:
        held_out.append(f"  {words.figure(latest)}", "dim")
    left = curve(loss, facts.losses, half, rows)
    return beside(left, curve(held_out, facts.held_out, width - half, rows))


def _fitted(line: Text, width: int) -> Text:
    line = line.copy()
    line.truncate(width, overflow="ellipsis", pad=True)
    return line


def curve(title: Text, values: Sequence[float], width: int, rows: int) -> list[Text]:
    """The title, and ``rows`` of curve with the highest and the lowest value beside it."""
    lines, values = [title], cut_off(values)
    drawn = braille(values, width - SCALE_WIDTH - 1, rows)
    for row, dots in enumerate(drawn):
        edge = {0: max, rows - 1: min}.get(row) if values else None
        scale = f"{edge(values):.3f}" if edge else ""
        lines.append(Text.assemble((f"{scale:>{SCALE_WIDTH - 1}} ", "dim"), (dots, "cyan")))
    for line in lines:
        line.truncate(width, pad=True)
    return lines


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
