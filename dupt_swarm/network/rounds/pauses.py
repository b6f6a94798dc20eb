"""When a peer that was asked in vain is asked again: later each time."""

from __future__ import annotations


class Pauses:
    """Those that are not asked at the moment, and what is remembered of them; all times in seconds."""

    def __init__(self, first: float, longest: float) -> None:
        """A pause lasts twice as long as the one before, between these two."""
        self._first, self._longest = first, longest
        self._ends: dict[str, tuple[float, float]] = {}  # when it ends, and how long it is

    def has(self, peer_id: str, now: float) -> bool:
        """Whether this peer is not to be asked yet."""
        return self._ends.get(peer_id, (now, 0.0))[0] > now

    def note(self, peer_id: str, now: float, *, useful: bool) -> None:
        """It was asked, to good purpose or in vain."""
        _, seconds = self._ends.pop(peer_id, (0.0, 0.0))
        self._ends = {peer: end for peer, end in self._ends.items() if now - end[0] < self._longest}
        if not useful:
            seconds = min(max(2 * seconds, self._first), self._longest)
            self._ends[peer_id] = now + seconds, seconds
