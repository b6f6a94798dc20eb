"""What happens between two scrapes, counted as it happens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dupt_swarm.metrics import peer as names
from dupt_swarm.metrics.spec import Distribution
from dupt_swarm.node.messages import CatchingUp, FetchFailed, RoundResult
from dupt_swarm.oracle.status import Status

if TYPE_CHECKING:
    from dupt_swarm.learning.stopwatch import Phase


class StepRecorder:
    """Inner steps, as the trainer tells them."""

    def __init__(self) -> None:
        self.steps = self.tokens = 0
        self.last: float | None = None
        self.phases: dict[Phase, Distribution] = {}

    def add(self, tokens: int, seconds: Mapping[Phase, float]) -> None:
        """A step on ``tokens`` tokens, with the seconds of its phases."""
        for phase, spent in seconds.items():
            self.phases.setdefault(phase, Distribution(names.STEP_BOUNDS)).observe(spent)
        self.steps += 1
        self.tokens += tokens
        self.last = time.time()


class RoundRecorder:
    """Ends of rounds and pauses, from what the oracle reports."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.rounds = 0
        self.failed: Counter[str] = Counter()
        self.durations = Distribution(names.AVERAGING_BOUNDS)
        self.last_success: float | None = None
        self.paused_seconds = 0.0
        self._result: RoundResult | None = None
        self._reported = time.monotonic()

    def report(self, status: Status) -> None:
        """How the oracle is doing; it says so several times a second, and after each round."""
        now = time.monotonic()
        if self.status is not None and self.status.state == "paused":
            self.paused_seconds += now - self._reported
        self._reported = now
        result = status.last_round
        if result is not None and result is not self._result:
            self._result = result
            self.rounds += 1
            self.durations.observe(result.seconds)
            if result.reason is not None:
                self.failed[result.reason] += 1
            else:
                self.last_success = time.time()
        self.status = status


class DownloadRecorder:
    """Downloads of newer states, from what the node tells."""

    def __init__(self) -> None:
        self.failed = 0
        self.durations = Distribution(names.DOWNLOAD_BOUNDS)
        self._since: float | None = None

    def hear(self, event: object) -> None:
        """Handle one event of the node; other kinds are ignored."""
        if isinstance(event, FetchFailed):
            self.failed += 1
        elif isinstance(event, CatchingUp):
            if event.fetching:
                self._since = time.monotonic()
            elif self._since is not None:
                self.durations.observe(time.monotonic() - self._since)
                self._since = None
