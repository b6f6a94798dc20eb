"""When a peer that failed us is asked again: later each time."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pauses:
    """Those that are not asked at the moment, or last, and what is remembered of them; in seconds."""

    def __init__(self, first: float, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        """A pause lasts twice as long as the one before, between these two; ``clock`` is for tests."""
        self._first, self._longest, self._clock = first, longest, clock
        self._ends: dict[str, tuple[float, float]] = {}  # when it ends, and how long it is

    def __contains__(self, peer_id: str) -> bool:
        """Whether this peer is not to be asked yet."""
        return peer_id in self._ends and self._ends[peer_id][0] > self._clock()

    def note(self, peer_id: str, *, useful: bool) -> None:
        """It was asked, to good purpose or in vain."""
        now = self._clock()
        _, seconds = self._ends.pop(peer_id, (0.0, 0.0))
        self._ends = {peer: end for peer, end in self._ends.items() if now - end[0] < self._longest}
        if not useful:
            seconds = min(max(2 * seconds, self._first), self._longest)
            self._ends[peer_id] = now + seconds, seconds
