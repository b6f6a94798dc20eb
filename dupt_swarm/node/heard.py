"""The latest of each kind of thing that a node told."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from dupt_swarm.node.messages import (
    Candidate,
    CatchingUp,
    Downloading,
    GroupFormed,
    LedgerPlace,
    LogLine,
    Traffic,
)
from dupt_swarm.node.view import View

UP_TO_DATE = CatchingUp(fetching=False, newer=None)

logger = logging.getLogger(__name__)


class Hearing:
    """Keeps the latest of what a node tells in its own thread, for whoever asks in another.

    Attributes:
        view: the live peers as the node last saw them.
        first_peer_at: when a first peer was among them last, on the monotonic clock.
        catching_up: where it stands with fetching a newer state.
        group: the group of the round that is being ended; None if there is none yet.
        candidate: the state that it leads to, while it is to be judged.
        ledger_place: what this peer has given ever; None: it does not know yet.
        traffic: bytes exchanged with other peers by the present process, as of a second ago.
        listeners: called with everything that the node tells unasked, in a thread of the node's.
    """

    def __init__(self, on_download: Callable[[Downloading], None]) -> None:
        """``on_download`` hears how far the download of a state is, in a thread of the node's."""
        self.view, self.first_peer_at = View(0.0, ()), -math.inf
        self.catching_up = UP_TO_DATE
        self.group: GroupFormed | None = None
        self.candidate: Candidate | None = None
        self.ledger_place: LedgerPlace | None = None
        self.traffic = Traffic(received=0, sent=0)
        self.listeners: list[Callable[[object], None]] = []
        self._on_download = on_download
        self._judging = threading.Lock()

    def judged(self, digest: str) -> None:
        """The candidate with this digest is not to be judged again; another may have come meanwhile."""
        with self._judging:
            candidate = self.candidate
            if candidate is not None and candidate.digest == digest:
                self.candidate = None

    def hear(self, event: object) -> None:
        """Runs in a thread of the node's link."""
        match event:
            case View():
                if event.first_peers:  # noted first: who sees that they are gone knows since when
                    self.first_peer_at = time.monotonic()
                self.view = event
            case CatchingUp():
                self.catching_up = event
            case GroupFormed():
                self.group = event
            case Candidate():
                with self._judging:
                    self.candidate = event
            case LedgerPlace():
                self.ledger_place = event
            case Traffic():
                self.traffic = event
            case Downloading():
                try:
                    self._on_download(event)
                except Exception:  # a screen that fails must not end this thread
                    logger.exception("the progress of a download could not be shown")
            case LogLine():
                logger.info("%s", event.text)
        for listener in self.listeners:
            listener(event)
