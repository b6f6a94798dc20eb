"""What `dupt-peer join` shows: a panel that renews itself on a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rich.live import Live

    from dupt_swarm.node.messages import Downloading
    from dupt_swarm.node.view import View
    from dupt_swarm.oracle.status import Status

LOG_SECONDS = 10.0
BAR_WIDTH = 24


class Screen(Protocol):
    """Where an oracle's progress goes."""

    def say(self, message: str) -> None:
        """One sentence."""

    def downloading(self, progress: Downloading) -> None:
        """How far the swarm's state is; called from another thread."""

    def tokenising(self, done: int, total: int) -> None:
        """How far the corpus is, in bytes."""

    def show(self, status: Status, view: View, peer_id: str) -> None:
        """How the oracle is doing."""


@contextmanager
def open_screen() -> Iterator[Screen]:
    """A panel if stderr is a terminal, else a log."""
    if not sys.stderr.isatty():
        yield Log()
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4) as live:
        yield Panel(live)


class Log:
    """A line now and then, and one for every round, on stderr."""

    def __init__(self) -> None:
        self._last = 0.0
        self._known: tuple[object, ...] = ()

    def say(self, message: str) -> None:
        """See `Screen`."""
        click.echo(f"{time.strftime('%H:%M:%S')}  {message}", err=True)

    def downloading(self, progress: Downloading) -> None:
        """See `Screen`."""
        complete = progress.bytes_done == progress.bytes_total
        if time.monotonic() - self._last > LOG_SECONDS or complete:
            self._last = time.monotonic()
            self.say(f"fetching the state: {describe_download(progress)}")

    def tokenising(self, done: int, total: int) -> None:
        """See `Screen`."""
        if time.monotonic() - self._last > LOG_SECONDS or done == total:
            self._last = time.monotonic()
            self.say(f"tokenising the corpus: {percent(done, total)}")

    def show(self, status: Status, view: View, peer_id: str) -> None:
        """See `Screen`."""
        paused = status.state == "paused"
        known = (status.rounds_done, status.failed_rounds, paused)
        # While paused, one line says it all.
        if known == self._known and (paused or time.monotonic() - self._last < LOG_SECONDS):
            return
        self._known, self._last = known, time.monotonic()
        facts = describe(status, view, peer_id)
        self.say("  ".join(f"{key} {value}" for key, value in facts.items()))


class Panel:
    """The facts one below the other, with a bar for the round."""

    def __init__(self, live: Live) -> None:
        self._live, self._showing = live, False

    def say(self, message: str) -> None:
        """See `Screen`."""
        self._live.console.print(message, markup=False, highlight=False)

    def downloading(self, progress: Downloading) -> None:
        """See `Screen`."""
        if self._showing:
            return  # a newer state is fetched while the oracle trains: its facts stay in sight
        full = bar(progress.bytes_done / max(progress.bytes_total, 1))
        self._live.update(f"fetching the state  {full} {describe_download(progress)}")

    def tokenising(self, done: int, total: int) -> None:
        """See `Screen`."""
        self._live.update(f"tokenising the corpus  {bar(done / max(total, 1))} {percent(done, total)}")

    def show(self, status: Status, view: View, peer_id: str) -> None:
        """See `Screen`."""
        from rich.table import Table
        from rich.text import Text

        self._showing = True
        table = Table.grid(padding=(0, 2))
        for key, value in describe(status, view, peer_id).items():
            cell = f"{bar(status.progress.ratio)} {value}" if key == "round full" else value
            table.add_row(Text(key, style="dim"), Text(cell))
        self._live.update(table)


def describe(status: Status, view: View, peer_id: str) -> dict[str, str]:
    """What there is to know at a glance, in words."""
    held_out = status.latest
    return {
        "state": state(status),
        "doing": str(status.activity),
        "round": str(status.round),
        "round full": percent(status.progress.ratio, 1.0),
        "loss": number(status.loss),
        "held-out": number(held_out.loss_nats if held_out else None)
        + (f" ({held_out.bits_per_byte:.3f} bits/byte)" if held_out else ""),
        "tokens/s": f"{status.tokens_per_second:,.0f}",
        "share": share(status, view, peer_id),
        "oracles": str(len(view.oracles)),
        "reach": reach(view, peer_id),
        "last round": last_round(status),
    }


def describe_download(progress: Downloading) -> str:
    """Such as ``42 %  393 of 936 MB  11.8 MB/s  4 donors``."""
    done, total, donors = progress.bytes_done, progress.bytes_total, progress.donors
    return (
        f"{percent(done, total)}  {done / 1e6:.0f} of {total / 1e6:.0f} MB  "
        f"{progress.bytes_per_second / 1e6:.1f} MB/s  {donors} donor{'' if donors == 1 else 's'}"
    )


def state(status: Status) -> str:
    """What it is doing; if it is paused, how that ends."""
    if status.state != "paused":
        return status.state
    if status.paused_until is None:
        return "paused (`dupt-peer resume` has it go on)"
    until = time.strftime("%H:%M", time.localtime(status.paused_until))
    return f"paused until {until} (`dupt-peer resume` has it go on now)"


def share(status: Status, view: View, peer_id: str) -> str:
    """Own speed ÷ the speed of all oracles."""
    others = [peer for peer in view.oracles if peer.peer_id != peer_id]
    total = status.tokens_per_second + sum(peer.record.tokens_per_second for peer in others)
    return percent(status.tokens_per_second, total)


def reach(view: View, peer_id: str) -> str:
    """How others call this peer."""
    return next((peer.record.reach for peer in view.peers if peer.peer_id == peer_id), "–")


def last_round(status: Status) -> str:
    """How the last round ended."""
    result = status.last_round
    if result is None:
        return "none yet"
    if result.state is None:
        return f"failed: {result.reason.replace('_', ' ')} (the contribution is kept)"
    return f"averaged {company(len(result.mates))} in {result.seconds:.1f} s"


def company(others: int) -> str:
    """``alone``, ``with 1 other``, ``with 2 others``."""
    return f"with {others} other{'s' if others > 1 else ''}" if others else "alone"


def number(value: float | None) -> str:
    """Four decimals, or a dash."""
    return "–" if value is None else f"{value:.4f}"


def percent(part: float, whole: float) -> str:
    """Such as ``42 %``."""
    return f"{100 * part / whole:.0f} %" if whole else "–"


def bar(ratio: float) -> str:
    """A bar of fixed width."""
    full = round(ratio * BAR_WIDTH)
    return "█" * full + "░" * (BAR_WIDTH - full)
