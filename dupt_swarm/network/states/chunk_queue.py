"""The chunks that a download still has to request, and the donors asked for the others."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

OVERDUE_SECONDS = 2.0
OVERDUE_RATIO = 3.0
STALLED_SECONDS = 10.0

Donor = TypeVar("Donor", bound=Hashable)


class ChunkQueue(Generic[Donor]):
    """The missing chunks of one download: waiting, or asked for from one donor, or several near the end.

    When no chunk waits any more, one that is overdue from all who were asked for it (it takes three times
    as long as others did) is asked for from another donor too, so that the end waits for nobody.
    """

    def __init__(self, missing: Iterable[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting = deque(sorted(missing))
        self._asked: dict[int, dict[Donor, float]] = {}
        self._usual_seconds = 0.0

    @property
    def waiting(self) -> int:
        """The number of chunks not requested from anybody."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """The number of requested chunks that may still arrive: without stalled ones."""
        since = self._clock() - STALLED_SECONDS
        return sum(max(asked.values()) > since for asked in self._asked.values())

    def holds(self, donor: Donor) -> bool:
        """Whether ``donor`` has open requests."""
        return any(donor in asked for asked in self._asked.values())

    def stalled(self, donor: Donor) -> bool:
        """Whether ``donor`` has owed a chunk for too long."""
        since = self._clock() - STALLED_SECONDS
        return any(asked.get(donor, math.inf) <= since for asked in self._asked.values())

    def take(self, donor: Donor, at_most: int) -> list[int]:
        """Chunks to ask ``donor`` for; none if there is nothing to do for it now."""
        numbers = [self._waiting.popleft() for _ in range(min(at_most, len(self._waiting)))]
        if not numbers and at_most > 0:
            numbers = self._overdue(donor)[:1]
        for number in numbers:
            # Not overdue before the request is out.
            self._asked.setdefault(number, {})[donor] = math.inf
        return numbers

    def sent(self, donor: Donor, numbers: Iterable[int]) -> None:
        """The request for ``numbers`` goes out now."""
        for number in numbers:
            if donor in self._asked.get(number, {}):
                self._asked[number][donor] = self._clock()

    def arrived(self, donor: Donor, number: int) -> list[Donor]:
        """``number`` came from ``donor``; returns the donors who were asked earlier, and are too slow."""
        asked = self._asked.pop(number, {})
        since = asked.pop(donor, math.inf)
        if since < math.inf:
            seconds = self._clock() - since
            self._usual_seconds += (seconds - self._usual_seconds) * (0.1 if self._usual_seconds else 1)
        return [other for other, earlier in asked.items() if earlier < since]

    def give_back(self, donor: Donor, numbers: Iterable[int]) -> None:
        """The request for ``numbers`` has ended; what nobody else is asked for waits again."""
        for number in sorted(numbers, reverse=True):
            asked = self._asked.get(number)
            if asked is None or asked.pop(donor, None) is None:
                continue
            if not asked:
                del self._asked[number]
                self._waiting.appendleft(number)

    def _overdue(self, donor: Donor) -> list[int]:
        before = self._clock() - max(OVERDUE_SECONDS, OVERDUE_RATIO * self._usual_seconds)
        return [
            number
            for number, asked in self._asked.items()
            if donor not in asked and max(asked.values()) < before
        ]
