"""How this peer's rounds ended, counted since it started, in the bounded form of its record."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from dupt_swarm.network.averaging.average import Average
from dupt_swarm.node.messages import Traffic
from dupt_swarm.node.reasons import COUNT_MAX, FAILURES, REJECTIONS, Failure, in_order
from dupt_swarm.node.record_fields import RoundFields


class RoundCounts:
    """Counts, and the figures of the last successful round."""

    def __init__(self, traffic: Callable[[], Traffic]) -> None:
        """``traffic`` reads the bytes exchanged so far; a round's are those since the last one."""
        self._failures: Counter[str] = Counter()
        self._averaged = 0
        self._last: RoundFields = {}
        self._read, self._ended, self._carried = traffic, time.monotonic(), traffic()

    def note(self, outcome: Average, succeeded: bool, seconds: float) -> None:
        """A round has ended here after ``seconds`` of averaging."""
        if not succeeded:
            self._failures[outcome.reason or Failure.OTHER] += 1
            return
        now, carried = time.monotonic(), self._read()
        self._averaged = min(self._averaged + 1, COUNT_MAX)
        self._last = {
            "group_size": 1 + len(outcome.mates),
            "averaging_seconds": seconds,
            "round_seconds": now - self._ended,
            "round_sent_bytes": carried.sent - self._carried.sent,
            "round_received_bytes": carried.received - self._carried.received,
        }
        self._ended, self._carried = now, carried

    def fields(self, rejected: Mapping[str, int]) -> RoundFields:
        """These counts as fields of the record, with the contributions ``rejected`` here."""
        return {
            **self._last,
            "averaged_rounds": self._averaged,
            "failures": in_order(self._failures, FAILURES),
            "rejections": in_order(rejected, REJECTIONS),
        }
