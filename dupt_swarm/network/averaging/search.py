"""One member's search for its group: whom it waits for, whom it may ask, and who did not coordinate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from dupt_swarm.network.averaging.clock import loop_time


class Search:
    """What one search for a group has come to know.

    Attributes:
        preferred: whom most others ask for the roll, if that is one for whom this member would not wait.
    """

    def __init__(self, companions: Collection[str], unfit: set[str]) -> None:
        """``unfit``: peers that did not coordinate in a search before; others come to it."""
        self._companions, self._seen, self._unfit = set(companions), set[str](), unfit
        self.preferred = ""
        self._failures: Counter[str] = Counter()
        self._asked: dict[str, float] = {}
        self._began = loop_time()

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return loop_time() - self._began

    @property
    def awaited(self) -> set[str]:
        """Those who should come: who does not do what a coordinator does is neither asked nor awaited."""
        return self._companions - self._unfit

    @property
    def candidates(self) -> set[str]:
        """Those who may coordinate."""
        return (self._companions | {self.preferred}) - self._unfit

    def note(self, present: Iterable[str]) -> None:
        """These are at the state now; who was and is no longer has left it."""
        seen = set(present)
        self._companions = (self._companions - (self._seen - seen)) | seen
        self._seen = seen

    def waited_for(self, coordinator: str) -> float:
        """Seconds since this one was asked first."""
        return loop_time() - self._asked.setdefault(coordinator, loop_time())

    def failed(self, coordinator: str, tolerated: int) -> None:
        """It could not be asked; so many times are too many."""
        self._failures[coordinator] += 1
        if self._failures[coordinator] >= tolerated:
            self.give_up(coordinator)

    def give_up(self, coordinator: str) -> None:
        """It dies, stalls or lies."""
        self._unfit.add(coordinator)
