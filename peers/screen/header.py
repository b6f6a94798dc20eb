"""The upper part of the panel: who and what, and where the round stands."""

from __future__ import annotations

from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from peers.screen import words
from peers.screen.facts import Facts, Flow

LABEL_WIDTH = 10


def header(facts: Facts, width: int) -> list[Text]:
    """Two lines: swarm, peer and state; model, device and corpus."""
    about = facts.about
    left = Text.assemble((f" {about.manifest.swarm_id}", "bold cyan"), ("  as ", "dim"), one_line(about.name))
    right = Text(f"{_activity(facts)} ", style="bold")
    room = max(0, width - right.cell_len - 1)
    left.truncate(room, overflow="ellipsis")
    left.append(" " * (width - left.cell_len - right.cell_len))
    what = f" {about.model}  ·  {one_line(about.device)}  ·  {one_line(about.corpus)}"
    return [Text.assemble(left, right), Text(what, style="dim")]


def numbers(facts: Facts) -> list[Text]:
    """Where the round stands, what the oracle does and gives, what the network carries, what rounds cost."""
    status, view, peer_id = facts.status, facts.view, facts.about.peer_id
    oracles = words.plural(len(view.oracles), "oracle")
    given, failed = words.amount(status.contributed_tokens), status.failed_rounds
    rounds = f"{status.rounds_done} this session" + (f", {failed} failed in all" if failed else "")
    return [
        _line(
            f"round {status.round}",
            (words.bar(status.progress.ratio), "cyan"),
            f" {words.percent(status.progress.ratio, 1.0):>5}  {_end(facts)}",
        ),
        _line("rounds", f"{rounds}; last {words.last_round(status)}"),
        _line(
            "speed",
            f"{status.tokens_per_second:,.0f} tokens/s, {words.share(status, view, peer_id)} of {oracles}; "
            f"reach {words.reach(view, peer_id)}",
        ),
        _line("given", f"{given} tokens, {_part(status.contributed_tokens, facts.swarm_tokens)}"),
        _line("network", f"↑ {_flow(facts.up)}   ↓ {_flow(facts.down)}"),
        _line("per round", words.costs(view.record(peer_id))),
    ]


def _activity(facts: Facts) -> str:
    status = facts.status
    return words.state(status).partition(" (")[0] if status.state == "paused" else str(status.activity)


def _end(facts: Facts) -> str:
    if facts.status.state == "averaging":
        return "averaging"
    if facts.status.state == "paused":
        return "`dupt-peer resume` continues"
    if facts.fetching is not None:
        ratio = words.percent(facts.fetching.bytes_done, facts.fetching.bytes_total)
        return f"fetching a newer state: {ratio}"
    seconds = facts.round_ends_in
    return "" if seconds is None else f"ends in about {words.duration(seconds)}"


def _part(own: int, whole: int) -> str:
    # Records lag behind: our last contribution may not be in what others tell.
    return f"{100 * own / max(own, whole):.1f} % of the swarm's" if whole else "none in the swarm yet"


def _flow(flow: Flow) -> str:
    limit = ", no limit" if flow.limit is None else f" of {words.amount(flow.limit, 'B/s')}"
    return f"{words.amount(flow.total, 'B')}, {words.amount(flow.per_second, 'B/s')}{limit}"


def _line(label: str, *parts: str | tuple[str, str]) -> Text:
    return Text.assemble((f" {label:<{LABEL_WIDTH}}", "dim"), *parts)
