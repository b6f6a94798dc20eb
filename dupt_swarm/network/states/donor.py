"""A peer that may give chunks of a download, and how it fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from hivemind.p2p import PeerID

from dupt_swarm.network.p2p.rpc import CallError, Refusal

AVOID_SECONDS = 120.0

Donors = Callable[[], Awaitable[Sequence[PeerID]]]


@dataclass(eq=False)
class Donor:
    """One donor in one download.

    Attributes:
        peer: who it is.
        task: draws chunks from it; None before it is asked for any.
        proved: it has given a chunk.
        busy: it had no place for us when it was asked last.
        reason: why it gave nothing lately, in words; empty if it gives.
    """

    peer: PeerID
    task: asyncio.Task[None] | None = None
    proved: bool = False
    busy: bool = False
    reason: str = ""

    @property
    def working(self) -> bool:
        """Whether it is being asked for chunks."""
        return self.task is not None and not self.task.done()

    def gave(self) -> None:
        """A chunk has arrived from it."""
        self.proved, self.reason = True, ""


class Backoff:
    """Donors that failed us lately: they are asked last, until their time is over."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[PeerID, float] = {}

    def add(self, donor: PeerID) -> None:
        """Avoid ``donor`` for a while."""
        now = self._clock()
        self._until = {other: until for other, until in self._until.items() if until > now}
        self._until[donor] = now + AVOID_SECONDS

    def __contains__(self, donor: PeerID) -> bool:
        return self._until.get(donor, 0.0) > self._clock()


def reason_of(error: BaseException) -> str:
    """Why a donor failed, in words."""
    if isinstance(error, TimeoutError):
        return "it fell silent"
    return str(error) or type(error).__name__


def is_harmless(error: BaseException) -> bool:
    """Whether a donor that says so has not failed: it is busy, or the swarm has moved on."""
    return isinstance(error, CallError) and error.refusal in (Refusal.LATER, Refusal.NOT_HELD)
