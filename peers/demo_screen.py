"""What the demo shows: the swarm while it learns, and a summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from dupt_swarm.node.node import Node
    from dupt_swarm.node.view import View

LOOK_SECONDS = 1.0
LOG_SECONDS = 10.0


class DemoScreen:
    """A table that renews itself on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._console = Console()
        self._started = time.monotonic()
        self._first: dict[str, float] = {}

    def say(self, message: str) -> None:
        """One sentence."""
        self._console.print(message, markup=False, highlight=False)

    def follow(self, address: str, rounds: int, running: Callable[[], bool]) -> None:
        """Show the swarm that ``address`` is in, as long as ``running``."""
        from dupt_swarm.swarm import observe

        node, _ = observe([address])
        with node:
            if self._console.is_terminal:
                with Live(console=self._console, refresh_per_second=4) as live:
                    self._look(node, running, lambda view: live.update(self._table(view, rounds)), 0.0)
            else:
                self._look(node, running, self._log, LOG_SECONDS)

    def sum_up(self, results: dict[str, dict[str, Any]]) -> None:
        """The result of each oracle, by name."""
        table = Table(box=None, pad_edge=False)
        for heading in ("oracle", "rounds", "tokens", "held-out loss", "bits per byte"):
            table.add_column(heading, justify="left" if heading == "oracle" else "right")
        for name, result in results.items():
            table.add_row(
                name,
                str(result["rounds"]),
                f"{result['tokens_total']:,}",
                f"{result['heldout_loss_before']:.3f} → {result['heldout_loss_after']:.3f}",
                f"{result['bits_per_byte_before']:.3f} → {result['bits_per_byte_after']:.3f}",
            )
        rounds = max(result["rounds"] for result in results.values())
        self.say(
            f"\n{len(results)} oracles and a first peer, {rounds} rounds, "
            f"{time.monotonic() - self._started:.0f} s, one model:\n"
        )
        self._console.print(table)

    def _look(
        self, node: Node, running: Callable[[], bool], show: Callable[[View], None], seconds: float
    ) -> None:
        shown = 0.0
        while running():
            view = node.refresh()
            for peer in view.oracles:
                if peer.record.loss is not None:
                    self._first.setdefault(peer.peer_id, peer.record.loss)
            if time.monotonic() - shown > seconds:
                show(view)
                shown = time.monotonic()
            time.sleep(LOOK_SECONDS)

    def _log(self, view: View) -> None:
        losses = "  ".join(
            f"{peer.record.name} {peer.record.loss:.3f}"
            for peer in view.oracles
            if peer.record.loss is not None
        )
        round_now = view.agreed.record.round if view.agreed else 0
        self.say(f"{time.strftime('%H:%M:%S')}  round {round_now}  loss: {losses or 'none yet'}")

    def _table(self, view: View, rounds: int) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("oracle", "state", "round", "tokens/s", "loss at first", "loss now", "state digest"):
            table.add_column(heading, justify="right" if "loss" in heading else "left", min_width=10)
        for peer in view.oracles:
            record, first = peer.record, self._first.get(peer.peer_id)
            table.add_row(
                Text(record.name),
                record.state,
                str(record.round),
                f"{record.tokens_per_second:,.0f}",
                "" if first is None else f"{first:.3f}",
                "" if record.loss is None else f"{record.loss:.3f}",
                record.state_digest[:12],
            )
        seconds = time.monotonic() - self._started
        return Group(Text(f"\n{len(view.oracles)} oracles, {rounds} rounds each, {seconds:.0f} s\n"), table)
