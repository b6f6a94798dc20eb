"""When an oracle rests: outside its hours, or because its owner said so."""

from __future__ import annotations

import time
from collections.abc import Callable

from dupt_swarm.timing.hours import ALWAYS, Hours


class Pausing:
    """Whether to rest now. Safe from any thread: what is said by hand is one value, replaced as a whole."""

    def __init__(self, hours: Hours = ALWAYS, clock: Callable[[], float] = time.time) -> None:
        """``hours`` in which to train; ``clock`` gives seconds since the epoch."""
        self._hours, self._clock = hours, clock
        # Whether to rest, and until when (None: for ever) the hours do not matter.
        self._by_hand: tuple[bool, float | None] | None = None

    def pause(self) -> None:
        """Rest until `resume`, or until the hours next begin or end."""
        self._set(rest=True)

    def resume(self) -> None:
        """Do not rest until `pause`, or until the hours next begin or end."""
        self._set(rest=False)

    @property
    def paused(self) -> bool:
        """Whether to rest now."""
        now, by_hand = self._clock(), self._by_hand
        if by_hand is not None and (by_hand[1] is None or now < by_hand[1]):
            return by_hand[0]
        return not self._hours.contain(now)

    @property
    def until(self) -> float | None:
        """When a rest ends by itself, in seconds since the epoch; None: only by `resume`.

        It is asked while resting: then the next border of the hours is either where they begin, or
        where they end and so begin later.
        """
        border = self._hours.next_border(self._clock())
        if border is None or self._hours.contain(border):
            return border
        return self._hours.next_border(border)

    def _set(self, *, rest: bool) -> None:
        self._by_hand = rest, self._hours.next_border(self._clock())
