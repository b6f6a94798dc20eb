"""Holds a trainer back while its GPUs are hotter, or draw more power, than their owner wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.driver import Card

REST_SECONDS = 0.2
HYSTERESIS = 3.0  # degrees by which a card cools down before it computes again
WINDOW_SECONDS = 10.0  # over which power is averaged: a card draws all or little


class Throttle:
    """Rests between micro-batches, so that the cards stay within their owner's limits."""

    def __init__(
        self,
        cards: Sequence[Card],
        temperature: float | None,
        power: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[], object] = lambda: time.sleep(REST_SECONDS),
    ) -> None:
        """Look whether the driver tells what is limited.

        Args:
            cards: those that compute.
            temperature: at most, °C; None: any.
            power: of each at most, W, in the mean over some seconds; None: any.
            clock: for tests.
            rest: likewise.

        Raises:
            DeviceError: nobody can tell.
        """
        self._cards, self._temperature, self._power = cards, temperature, power
        self._clock, self._rest = clock, rest
        self._hot = False
        self._began, self._used = clock(), list[float]()
        if temperature is not None:
            _told("max_temperature", "how hot this device is", [card.temperature() for card in cards])
        if power is not None:
            self._used = _told("max_power", "how much this device draws", [card.energy() for card in cards])

    def look(self) -> Iterator[None]:
        """Rest as long as it takes; yields before each bit of rest, so that the caller can look around."""
        while self._too_hot() or self._too_much():
            yield
            self._rest()

    def _too_hot(self) -> bool:
        if self._temperature is None:
            return False
        hottest = max(card.temperature() or 0.0 for card in self._cards)
        self._hot = hottest > self._temperature - (HYSTERESIS if self._hot else 0.0)
        return self._hot

    def _too_much(self) -> bool:
        """Whether a card has drawn more since the window began than its limit allows until now."""
        if self._power is None:
            return False
        read = [card.energy() for card in self._cards]
        used = [joules for joules in read if joules is not None]
        if len(used) < len(read):
            return False  # one does not tell now
        seconds = self._clock() - self._began
        worst = max(after - before for after, before in zip(used, self._used, strict=True))
        if worst > self._power * seconds:
            return True
        if seconds > WINDOW_SECONDS:
            self._began, self._used = self._clock(), used
        return False


def _told(setting: str, what: str, readings: Sequence[float | None]) -> list[float]:
    told = [reading for reading in readings if reading is not None]
    if not told or len(told) < len(readings):
        raise DeviceError(f"no driver tells {what}; leave the limit out", setting=setting)
    return told
