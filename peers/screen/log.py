"""Progress as lines on stderr: where it is no terminal, and for programs that show little."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.node.view import View
from peers.screen import words
from peers.screen.facts import About, Facts
from peers.screen.history import History

if TYPE_CHECKING:
    from dupt_swarm.node.messages import Downloading, Traffic
    from dupt_swarm.oracle.status import Status

LOG_SECONDS = 10.0


class Log:
    """A line now and then, and one for every round, on stderr."""

    def __init__(self) -> None:
        self._last = 0.0
        self._known: tuple[object, ...] = ()
        self._about: About | None = None
        self._history = History()

    def say(self, message: str) -> None:
        """See `Screen`."""
        click.echo(f"{time.strftime('%H:%M:%S')}  {one_line(message)}", err=True)

    def downloading(self, progress: Downloading) -> None:
        """See `Screen`."""
        complete = progress.bytes_done == progress.bytes_total
        if time.monotonic() - self._last > LOG_SECONDS or complete:
            self._last = time.monotonic()
            self.say(f"fetching the state: {words.describe_download(progress)}")

    def tokenising(self, done: int, total: int) -> None:
        """See `Screen`."""
        if time.monotonic() - self._last > LOG_SECONDS or done == total:
            self._last = time.monotonic()
            self.say(f"tokenising the corpus: {words.percent(done, total)}")

    def begin(self, about: About) -> None:
        """See `Screen`."""
        self._about = about
        self.say(f"{about.model} on {about.device}, {about.corpus}")

    def show(self, status: Status, view: View, traffic: Traffic) -> None:
        """See `Screen`."""
        about = self._about
        assert about is not None, "`begin` comes first"
        self._history.note(status, traffic)
        paused = status.state == "paused"
        known = (status.rounds_done, status.failed_rounds, paused)
        # While paused, one line says it all.
        if known == self._known and (paused or time.monotonic() - self._last < LOG_SECONDS):
            return
        self._known, self._last = known, time.monotonic()
        facts = describe(self._history.facts(about, status, view))
        click.echo(
            "  ".join([time.strftime("%H:%M:%S"), *(f"{key} {value}" for key, value in facts.items())]),
            err=True,
        )


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
