"""The latest of each kind of thing that a node told."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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

NOBODY = View(0.0, ())
UP_TO_DATE = CatchingUp(fetching=False, newer=None)
NO_TRAFFIC = Traffic(received=0, sent=0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Heard:
    """Replaced as a whole by each event, so that every thread sees one that fits together.

    Attributes:
        view: the live peers as the node last saw them.
        catching_up: where it stands with fetching a newer state.
        group: the group of the round that is being ended; None if there is none yet.
        candidate: the state that it leads to, while it is to be judged.
        ledger_place: what this peer has given ever; None: it does not know yet.
        traffic: bytes exchanged with other peers by the present process, as of a second ago.
        first_peer_at: when a first peer was among them last, on the monotonic clock.
    """

    view: View = NOBODY
    catching_up: CatchingUp = UP_TO_DATE
    group: GroupFormed | None = None
    candidate: Candidate | None = None
    ledger_place: LedgerPlace | None = None
    traffic: Traffic = NO_TRAFFIC
    first_peer_at: float = -math.inf

    def after(self, event: object) -> Heard:
        """What is known after ``event``."""
        changes: dict[str, Any] = {KINDS[type(event)]: event} if type(event) in KINDS else {}
        if isinstance(event, View) and event.first_peers:
            changes["first_peer_at"] = time.monotonic()
        return replace(self, **changes)


# Which attribute each kind of event replaces; other kinds are only passed on.
KINDS: dict[type, str] = {
    View: "view",
    CatchingUp: "catching_up",
    GroupFormed: "group",
    Candidate: "candidate",
    LedgerPlace: "ledger_place",
    Traffic: "traffic",
}


class Hearing:
    """Keeps the latest of what a node tells in its own thread, for whoever asks in another.

    Attributes:
        heard: that; replaced as a whole.
        on_event: called with everything that the node tells unasked, in a thread of the node's.
    """

    def __init__(self, on_download: Callable[[Downloading], None]) -> None:
        """``on_download`` hears how far the download of a state is, in a thread of the node's."""
        self.heard = Heard()
        self.on_event: Callable[[object], None] = lambda _: None
        self._on_download = on_download
        self._lock = threading.Lock()

    def put(self, **changes: Any) -> None:
        """Put something else in place of what was heard."""
        with self._lock:
            self.heard = replace(self.heard, **changes)

    def judged(self, digest: str) -> None:
        """The candidate with this digest is not to be judged again; another may have come meanwhile."""
        with self._lock:
            if self.heard.candidate is not None and self.heard.candidate.digest == digest:
                self.heard = replace(self.heard, candidate=None)

    def hear(self, event: object) -> None:
        """Runs in a thread of the node's link."""
        with self._lock:
            self.heard = self.heard.after(event)
        if isinstance(event, Downloading):
            try:
                self._on_download(event)
            except Exception:  # a screen that fails must not end this thread
                logger.exception("the progress of a download could not be shown")
        elif isinstance(event, LogLine):
            logger.info("%s", event.text)
        self.on_event(event)
