"""When to evaluate on held-out data, within a small fraction of the time."""

from __future__ import annotations

import time
from collections.abc import Callable

from dupt_swarm.learning.quality import Quality

TIME_RATIO = 0.02


class HeldOut:
    """Evaluates when due, so that evaluation takes at most `TIME_RATIO` of the time.

    Attributes:
        first: at the start, latest: the last one; None if not done yet.
    """

    def __init__(self, evaluate: Callable[[], Quality]) -> None:
        """``evaluate`` measures the model as it is now."""
        self._evaluate = evaluate
        self._next = 0.0
        self.first: Quality | None = None
        self.latest: Quality | None = None

    def measure(self) -> None:
        """Measure now."""
        started = time.monotonic()
        self.latest = self._evaluate()
        self.first = self.first or self.latest
        now = time.monotonic()
        self._next = now + (now - started) / TIME_RATIO

    def measure_if_due(self) -> None:
        """Measure if the last measurement is old enough."""
        if time.monotonic() >= self._next:
            self.measure()
