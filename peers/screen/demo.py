"""What the demo shows: the swarm while it learns, and a summary."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.errors import NodeError
from dupt_swarm.node.view import Peer, View
from peers.screen.table import build_table
from peers.screen.words import plural

LOOK_SECONDS = 1.0


class DemoScreen:
    """A table that renews itself on a terminal, a line for each round elsewhere."""

    def __init__(self) -> None:
        self._console = Console()
        self._started = time.monotonic()
        self._first: dict[str, float] = {}
        self._oracles: dict[str, Peer] = {}
        self._logged = -1  # the last round that has a line

    def say(self, message: str) -> None:
        """One sentence."""
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)

    def follow(self, address: str, rounds: int, running: Callable[[], bool]) -> None:
        """Show the swarm that ``address`` is in, as long as ``running``."""
        from dupt_swarm.discovery import observe

        node, _ = observe([address])
        with node:
            if not sys.stdout.isatty():
                self.watch(node.refresh, running, self.log)
                return
            with Live(console=self._console, auto_refresh=False) as live:

                def show(round_now: int) -> None:
                    live.update(self._table(round_now, rounds), refresh=True)

                self.watch(node.refresh, running, show)

    def watch(
        self, look: Callable[[], View], running: Callable[[], bool], show: Callable[[int], None]
    ) -> None:
        """Hand the swarm's round to ``show`` again and again, once there are oracles.

        Those that leave at the end stay in sight: what they reached is what counts.
        """
        while running():
            with contextlib.suppress(NodeError):  # whoever only looks must not end the training
                self._take(look(), show)
            time.sleep(LOOK_SECONDS)

    def _take(self, view: View, show: Callable[[int], None]) -> None:
        self._oracles |= {peer.peer_id: peer for peer in view.oracles}
        for peer in view.oracles:
            if peer.record.loss is not None:
                self._first.setdefault(peer.peer_id, peer.record.loss)
        if view.oracles and view.agreed:
            show(view.agreed.record.round)

    def log(self, round_now: int) -> None:
        """A line for each round, once there is a loss."""
        losses = sorted(
            f"{one_line(peer.record.name)} {peer.record.loss:.3f}"
            for peer in self._oracles.values()
            if peer.record.loss is not None
        )
        if losses and round_now > self._logged:
            self._logged = round_now
            self.say(f"{time.strftime('%H:%M:%S')}  round {round_now}  loss: {'  '.join(losses)}")

    def sum_up(self, results: dict[str, dict[str, Any]]) -> None:
        """The result of each oracle, by name."""
        figures = ("rounds", "tokens", "held-out loss", "bits per byte")
        rows = [
            (
                name,
                str(result["rounds"]),
                f"{result['tokens_total']:,}",
                f"{result['heldout_loss_before']:.3f} → {result['heldout_loss_after']:.3f}",
                f"{result['bits_per_byte_before']:.3f} → {result['bits_per_byte_after']:.3f}",
            )
            for name, result in results.items()
        ]
        table = build_table(("oracle", *figures), rows, right=figures)
        rounds = max(result["rounds"] for result in results.values())
        self.say(
            f"\n{len(results)} oracles and a first peer, {plural(rounds, 'round')}, "
            f"{time.monotonic() - self._started:.0f} s, one model:\n"
        )
        self._console.print(table)

    def _table(self, round_now: int, rounds: int) -> Group:
        losses = ("loss at first", "loss now")
        table = build_table(
            ("oracle", "state", "round", "tokens/s", *losses, "state digest"),
            map(self._cells, self._oracles.values()),
            right=losses,
            min_width=10,
        )
        seconds = time.monotonic() - self._started
        swarm = f"{plural(len(self._oracles), 'oracle')}, {plural(rounds, 'round')} each"
        return Group(Text(f"\n{swarm}; round {round_now}, {seconds:.0f} s\n"), table)

    def _cells(self, peer: Peer) -> tuple[str, ...]:
        record, first = peer.record, self._first.get(peer.peer_id)
        return (
            record.name,
            record.state,
            str(record.round),
            f"{record.tokens_per_second:,.0f}",
            "" if first is None else f"{first:.3f}",
            "" if record.loss is None else f"{record.loss:.3f}",
            record.state_digest[:12],
        )
