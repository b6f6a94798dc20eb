"""What this peer's record says of the rounds that it has ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from dupt_swarm.node.messages import Traffic
from dupt_swarm.node.reasons import COUNT_MAX, FAILURES, REJECTIONS, Failure, in_order
from dupt_swarm.node.record import RecordUpdate


class Tally:
    """Counts rounds that have succeeded, and those that have failed by reason."""

    def __init__(self, traffic: Callable[[], Traffic]) -> None:
        """``traffic`` reads the bytes exchanged so far."""
        self._failures: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._averaged, self._last = 0, RecordUpdate()
        self._traffic, self._last_end = traffic, (time.monotonic(), traffic())

    def succeeded(self, group_size: int, seconds: float) -> None:
        """A round has ended with our contribution, of ``group_size`` peers."""
        (before, carried), self._last_end = self._last_end, (time.monotonic(), self._traffic())
        ended, carries = self._last_end
        self._averaged = min(self._averaged + 1, COUNT_MAX)
        self._last = RecordUpdate(
            group_size=group_size,
            averaging_seconds=seconds,
            round_seconds=ended - before,
            round_sent_bytes=carries.sent - carried.sent,
            round_received_bytes=carries.received - carried.received,
        )

    def failed(self, reason: Failure) -> None:
        """A round has failed."""
        self._failures[reason] += 1

    def reject(self, rejected: Counter[str]) -> None:
        """Contributions were left out of an average here, by reason."""
        self._rejected += rejected

    @property
    def told(self) -> RecordUpdate:
        """What the own record says."""
        return self._last | RecordUpdate(
            averaged_rounds=self._averaged,
            failures=in_order(self._failures, FAILURES),
            rejections=in_order(self._rejected, REJECTIONS),
        )
