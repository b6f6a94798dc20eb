"""Where an oracle's progress goes: a panel on a terminal, a log elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from dupt_swarm.node.view import View
from peers.screen.facts import About
from peers.screen.log import Log

if TYPE_CHECKING:
    from dupt_swarm.node.messages import Downloading, Traffic
    from dupt_swarm.oracle.status import Status


class Screen(Protocol):
    """Shows an oracle's progress."""

    def say(self, message: str) -> None:
        """One sentence."""

    def downloading(self, progress: Downloading) -> None:
        """How far the swarm's state is; called from another thread."""

    def tokenising(self, done: int, total: int) -> None:
        """How far the corpus is, in bytes."""

    def begin(self, about: About) -> None:
        """The oracle is ready; what stays the same from now on."""

    def show(self, status: Status, view: View, traffic: Traffic) -> None:
        """How the oracle is doing."""


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
