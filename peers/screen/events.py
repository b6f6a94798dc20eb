"""The last things that happened, in words, found by comparing each report with the one before."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.node.view import Peer, View
from dupt_swarm.oracle.status import Status
from peers.screen import words

EVENTS_KEPT = 100


class Events:
    """Lines with the time of day, the newest last."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._status: Status | None = None
        self._oracles: dict[str, Peer] | None = None

    def say(self, message: str) -> None:
        """Something happened."""
        self.lines.append(f"{time.strftime('%H:%M:%S')}  {one_line(message)}")

    def note(self, status: Status, view: View, peer_id: str) -> None:
        """A report: what it has that is new becomes events."""
        before, self._status = self._status, status
        if before is not None:
            for message in changes(before, status):
                self.say(message)
        oracles = {peer.peer_id: peer for peer in view.oracles if peer.peer_id != peer_id}
        # An empty view is a node that starts again, and the first one no news.
        if self._oracles is not None and view.peers:
            for message in arrivals(self._oracles, oracles):
                self.say(message)
        if view.peers:
            self._oracles = oracles


def changes(before: Status, now: Status) -> Iterator[str]:
    """What happened to the oracle between two reports."""
    if now.last_round is not None and now.last_round is not before.last_round:
        number = now.last_round.state.round if now.last_round.state else now.round + 1
        yield f"round {number} {words.last_round(now)}"
    elif now.round > before.round:
        yield f"took over the swarm's state of round {now.round}"
    old, new = before.latest, now.latest
    if new is not None and old is not None and new is not old:
        yield f"held-out loss {words.number(old.loss_nats)} → {words.number(new.loss_nats)}"
    if (before.state == "paused") != (now.state == "paused"):
        yield words.state(now) if now.state == "paused" else "goes on training"


def arrivals(before: dict[str, Peer], now: dict[str, Peer]) -> Iterator[str]:
    """Which other oracles came and went."""
    yield from (f"{_name(peer)} joined" for peer_id, peer in now.items() if peer_id not in before)
    yield from (f"{_name(peer)} left" for peer_id, peer in before.items() if peer_id not in now)


def render(lines: Sequence[str], rows: int) -> list[Text]:
    """The newest ``rows`` of them, the time of day in the background."""
    shown = []
    for line in lines[-rows:] if rows > 0 else ():
        clock, _, message = line.partition("  ")
        shown.append(Text.assemble((f" {clock}  ", "dim"), message))
    return shown


def _name(peer: Peer) -> str:
    return peer.record.name or f"oracle {peer.peer_id[-8:]}"
