"""The panel: a view of the oracle that renews itself, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from dupt_swarm.command_line.printable import one_line
from peers.screen import words
from peers.screen.events import Events
from peers.screen.facts import About, Facts, Flow
from peers.screen.frame import frame
from peers.screen.history import History

if TYPE_CHECKING:
    from dupt_swarm.node.messages import Downloading, Traffic
    from dupt_swarm.node.view import View
    from dupt_swarm.oracle.status import Status


@contextmanager
def open_panel() -> Iterator[Panel]:
    """A panel on stderr while the block lasts; what it showed last stays."""
    console = Console(stderr=True, file=cast(IO[str], Whole(sys.stderr)))
    # It is drawn when there is something new, and not otherwise.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield Panel(live)


class Panel:
    """All that is known, in the terminal's size."""

    def __init__(self, live: Live) -> None:
        self._live, self._console = live, live.console
        self._about: About | None = None
        self._history, self._events = History(), Events()
        self._drawn: object = None

    def say(self, message: str) -> None:
        """See `Screen`."""
        if self._about is None:
            self._console.print(one_line(message), markup=False, highlight=False)
        self._events.say(message)

    def downloading(self, progress: Downloading) -> None:
        """See `Screen`."""
        if self._about is None:  # later ones are fetched while the oracle trains: its facts stay in sight
            full = words.bar(progress.bytes_done / max(progress.bytes_total, 1))
            self._draw([Text(f"fetching the state  {full} {words.describe_download(progress)}")])

    def tokenising(self, done: int, total: int) -> None:
        """See `Screen`."""
        full = words.bar(done / max(total, 1))
        self._draw([Text(f"tokenising the corpus  {full} {words.percent(done, total)}")])

    def begin(self, about: About) -> None:
        """See `Screen`."""
        self._about = about

    def show(self, status: Status, view: View, traffic: Traffic) -> None:
        """See `Screen`."""
        about, history = self._about, self._history
        assert about is not None, "`begin` comes first"
        history.note(status, traffic)
        self._events.note(status, view, about.peer_id)
        facts = Facts(
            about,
            status,
            view,
            up=Flow(history.sent.total, history.sent.per_second, about.max_upload),
            down=Flow(history.received.total, history.received.per_second, about.max_download),
            round_seconds=history.round_seconds,
            losses=history.losses.values,
            held_out=history.held_out.values,
            events=list(self._events.lines),
        )
        width, height = self._console.size
        self._draw(frame(facts, width, height - 1))  # the cursor has the last line

    def _draw(self, lines: list[Text]) -> None:
        """Renew what is shown, if it has changed."""
        content = self._console.size, lines
        if content == self._drawn:
            return
        if isinstance(self._drawn, tuple) and self._drawn[0] != self._console.size:
            self._console.clear()  # the terminal broke the lines anew: nobody knows where they are
        self._drawn = content
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
