"""The panel: a view of the oracle that renews itself, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from dupt_swarm.node.messages import Downloading, Traffic
from dupt_swarm.node.view import View
from dupt_swarm.oracle.status import Status
from peers.screen import words
from peers.screen.events import Events
from peers.screen.facts import About, Facts
from peers.screen.frame import frame
from peers.screen.history import History

ECHO = "^C"  # what a terminal writes of its own when somebody types Ctrl-C


@contextmanager
def open_panel() -> Iterator[Panel]:
    """A panel on stderr while the block lasts; what it showed last stays."""
    console = Console(stderr=True, file=cast(IO[str], Whole(sys.stderr)))
    # It is drawn when there is something new, and not otherwise.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Panel(live)


class Panel:
    """All that is known, in the terminal's size. It is told of it as `Log` is."""

    def __init__(self, live: Live) -> None:
        self._live, self._console = live, live.console
        self._about: About | None = None
        self._facts: Facts | None = None
        self._history, self._events = History(), Events()
        self._fetching: Downloading | None = None
        self._drawn: tuple[object, list[Text]] | None = None

    def say(self, message: str) -> None:
        self._events.say(message)
        if self._facts is not None:
            self._draw_facts(replace(self._facts, events=list(self._events.lines)))
        elif self._about is None:
            self._console.print(one_line(message), markup=False, highlight=False)

    def downloading(self, progress: Downloading) -> None:
        # Later ones are fetched while the oracle trains: its facts stay in sight.
        complete = progress.bytes_done >= progress.bytes_total
        self._fetching = None if complete else progress
        if self._about is None:
            full = words.bar(progress.bytes_done / max(progress.bytes_total, 1))
            self._draw([Text(f"fetching the state  {full} {words.describe_download(progress)}")])

    def preparing(self, done: int, total: int) -> None:
        full = words.bar(done / max(total, 1))
        self._draw([Text(f"preparing the corpus  {full} {words.percent(done, total)}")])

    def begin(self, about: About) -> None:
        self._about, self._fetching = about, None

    def show(self, status: Status, view: View, traffic: Traffic) -> None:
        about, history = self._about, self._history
        assert about is not None, "`begin` comes first"
        if self._facts is not None and status.round != self._facts.status.round:
            self._fetching = None  # that round is over, whether or not it was fetched
        history.note(status, traffic)
        self._events.note(status, view, about.peer_id)
        facts = history.facts(about, status, view)
        self._draw_facts(replace(facts, events=list(self._events.lines), fetching=self._fetching))

    def _draw_facts(self, facts: Facts) -> None:
        self._facts = facts
        width, height = self._console.size
        lines = frame(facts, width, height - 1)  # the shell's prompt has the last line
        for line in lines[-1:]:  # behind it is the cursor: an echo that wrapped would shift what is there
            line.rstrip()
            line.truncate(width - len(ECHO), overflow="ellipsis")
        self._draw(lines)

    def _draw(self, lines: list[Text]) -> None:
        """Renew what is shown, if it has changed."""
        size = self._console.size
        if self._drawn == (size, lines):
            return
        if self._drawn is not None and self._drawn[0] != size:
            self._console.clear()  # the terminal broke the lines anew: nobody knows where they are
        self._drawn = size, lines
        self._live.update(Text("\n").join(lines), refresh=True)


class Whole:
    """Has a terminal show each write as a whole: no half frames, so nothing flickers.

    Terminals that do not know synchronized output pass over its marks.
    """

    def __init__(self, stream: TextIO) -> None:
        """``stream`` is the terminal."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, to be shown at once."""
        return self._stream.write(f"\x1b[?2026h{text}\x1b[?2026l")

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
