"""Progress as lines on stderr: where no panel can be drawn, and for programs that show little."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.learning.left_out import LeftOut
from dupt_swarm.node.messages import Downloading, Traffic
from dupt_swarm.node.view import View
from dupt_swarm.oracle.status import Status
from peers.screen import words
from peers.screen.facts import About, Facts
from peers.screen.history import History

if TYPE_CHECKING:
    from peers.screen.panel import Panel

LOG_SECONDS = 10.0

Screen: TypeAlias = "Log | Panel"
"""Shows an oracle's progress."""


@contextmanager
def open_screen() -> Iterator[Screen]:
    """A panel if stderr is a terminal that can show one, else a log."""
    if not _can_draw():
        yield Log()
        return
    from peers.screen.panel import open_panel

    with open_panel() as panel:
        yield panel


def _can_draw() -> bool:
    """Whether stderr is a terminal that moves its cursor and shows braille."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    encoding = (getattr(sys.stderr, "encoding", None) or "").lower()
    return sys.stderr.isatty() and not dumb and encoding.startswith("utf")


class Log:
    """A line now and then, and one for every round, on stderr."""

    def __init__(self) -> None:
        self._last = -math.inf
        self._known: tuple[object, ...] = ()
        self._about: About | None = None
        self._history = History()

    def say(self, message: str) -> None:
        """One sentence."""
        click.echo(f"{time.strftime('%H:%M:%S')}  {one_line(message)}", err=True)

    def say_at_times(self, message: str, last: bool = False) -> None:
        """One sentence of many alike: only if none was said for a while, or it is the last."""
        if time.monotonic() - self._last > LOG_SECONDS or last:
            self._last = time.monotonic()
            self.say(message)

    def downloading(self, progress: Downloading) -> None:
        """How far the swarm's state is; called from another thread."""
        complete = progress.bytes_done == progress.bytes_total
        self.say_at_times(f"fetching the state: {words.describe_download(progress)}", complete)

    def preparing(self, done: int, total: int) -> None:
        """How far the corpus is: being tokenised, in bytes, or fetched, in files."""
        self.say_at_times(f"preparing the corpus: {words.percent(done, total)}", done == total)

    def begin(self, about: About) -> None:
        """The oracle is ready; what stays the same from now on."""
        self._about = about
        self.say(f"{about.model} on {about.device}, {about.corpus}")

    def show(self, status: Status, view: View, traffic: Traffic) -> None:
        """How the oracle is doing."""
        about = self._about
        assert about is not None, "`begin` comes first"
        self._history.note(status, traffic)
        paused = status.state == "paused"
        known = (status.rounds_done, status.failed_rounds, paused, status.waits)
        # While paused, one line says it all.
        if known == self._known and (paused or time.monotonic() - self._last < LOG_SECONDS):
            return
        self._known, self._last = known, time.monotonic()
        facts = describe(self._history.facts(about, status, view))
        click.echo(
            "  ".join([time.strftime("%H:%M:%S"), *(f"{key} {value}" for key, value in facts.items())]),
            err=True,
        )


def note_left_out(left_out: Sequence[LeftOut]) -> None:
    """Say which files could not be read, in notes."""
    for sentence in words.about_left_out(left_out):
        click.echo(f"note: {one_line(sentence)}", err=True)


def describe(facts: Facts) -> dict[str, str]:
    """What there is to know at a glance, in words."""
    status, held_out = facts.status, facts.status.latest
    figure = words.figure(held_out) if held_out else ""
    return {
        "state": words.state(status),
        "doing": str(status.activity),
        "round": ", ".join(filter(None, (str(status.round), f"{facts.round_full} full", facts.round_end))),
        "loss": words.number(status.loss),
        "held-out": words.number(held_out.loss_nats if held_out else None)
        + (f" ({figure})" if figure else ""),
        **facts.by_label(),
    }
