"""The panel's content: lines of text that fill a terminal of any size, and never more than that."""

from __future__ import annotations

from rich.text import Text

from peers.screen import events, words
from peers.screen.curves import beside, curve
from peers.screen.facts import Facts
from peers.screen.header import header, numbers

CURVE_ROWS_MIN, CURVE_ROWS = 2, 6
EVENTS_MIN = 4


def frame(facts: Facts, width: int, height: int) -> list[Text]:
    """At most ``height`` lines of exactly ``width`` cells.

    On a low terminal the curves go first, then the events; on a high one both get more.
    """
    rule = Text("─" * width, style="dim")
    lines = [*header(facts, width), rule, *numbers(facts), rule]
    left = height - len(lines)
    rows = min(left - 2 - EVENTS_MIN, max(CURVE_ROWS, left // 2))
    if rows >= CURVE_ROWS_MIN:
        lines += [*_curves(facts, width, rows), rule]
    lines += events.render(list(facts.events), height - len(lines))
    return [_fitted(line, width) for line in lines[:height]]


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
