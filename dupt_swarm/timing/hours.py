"""Hours of the day in which an oracle may train: ``22-07``, local time."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from dupt_swarm.errors import UsageError

DAY_MINUTES = 24 * 60
_RANGE = re.compile(r"(\d{1,2})(?::(\d\d))?-(\d{1,2})(?::(\d\d))?", re.ASCII)


@dataclass(frozen=True)
class Hours:
    """Half-open ranges of minutes since midnight; no range means all day.

    A range that ends before it begins crosses midnight. Hours are local wall-clock time: on the nights when
    clocks change, a range is shorter or longer.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, texts: tuple[str, ...]) -> Hours:
        """Read ranges such as ``22-07`` and ``12:30-13:30``; a text may hold several, separated by commas.

        Raises:
            UsageError: a text is not a range, or the range is empty.
        """
        return cls(tuple(_parse_range(part.strip()) for text in texts for part in text.split(",")))

    def contain(self, moment: float) -> bool:
        """Whether ``moment`` (seconds since the epoch) lies in one of the ranges."""
        local = time.localtime(moment)
        minute = 60 * local.tm_hour + local.tm_min
        return not self.ranges or any(
            start <= minute < end if start < end else minute >= start or minute < end
            for start, end in self.ranges
        )

    def next_border(self, moment: float) -> float | None:
        """When a range next begins or ends after ``moment``; None if none ever does."""
        inside = self.contain(moment)
        first = int(moment) // 60 * 60 + 60
        # Clocks change by whole minutes, so testing every minute is right on those nights too.
        minutes = range(first, first + 2 * DAY_MINUTES * 60, 60)
        return next((float(minute) for minute in minutes if self.contain(minute) != inside), None)


ALWAYS = Hours()


def _parse_range(text: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"hours {text}: write them like 22-07 or 22:30-07:15", setting="hours")
    start, end = (60 * int(match[hour]) + int(match[hour + 1] or 0) for hour in (1, 3))
    minutes_fit = all(int(match[part] or 0) < 60 for part in (2, 4))
    if not minutes_fit or start >= DAY_MINUTES or end > DAY_MINUTES:
        raise UsageError(f"hours {text}: no such time of day; use 00:00 to 24:00", setting="hours")
    if start == end:
        raise UsageError(f"hours {text}: the range is empty; leave it out to train all day", setting="hours")
    return start, end
