"""The panel's content: lines of text that fill a terminal of any size, and never more than that."""

from __future__ import annotations

from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from peers.screen import events, words
from peers.screen.curves import beside, curve
from peers.screen.facts import Facts

CURVE_ROWS_MIN, CURVE_ROWS = 2, 6
EVENTS_MIN = 4
LABEL_WIDTH = 10


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
    lines += events.render(list(facts.events), height - len(lines))
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
