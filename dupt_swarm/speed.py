"""A moving rate."""

from __future__ import annotations

import time
from collections import deque

WINDOW_SECONDS = 10.0


class Speed:
    """Units per second over the last ten seconds."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was counted, so that an idle period does not lower the rate."""
        self._events: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def add(self, units: int) -> None:
        """Count ``units`` completed just now."""
        now = time.monotonic()
        self._events.append((now, units))
        while now - self._events[0][0] > WINDOW_SECONDS and len(self._events) > 2:
            self._events.popleft()

    @property
    def per_second(self) -> float:
        """0 until there is something to measure."""
        first, last = self._events[0][0], self._events[-1][0]
        units = sum(count for _, count in self._events) - self._events[0][1]
        return units / (last - first) if last > first else 0.0
