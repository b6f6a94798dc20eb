"""Whether others leave this machine alone, for an oracle that trains only then."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

import psutil
import torch

from dupt_swarm.learning.cores import used_seconds
from dupt_swarm.learning.driver import Card, cards_of

LOOK_SECONDS = 5.0
# Somebody works here who uses more than this part of all cores, or of a GPU's time,
CORES_MAX, GPU_MAX = 0.3, 0.2
BUSY_SECONDS = 10.0  # for so long,
QUIET_RATIO, QUIET_SECONDS = 0.6, 120.0  # until it has been less than so much of that for two minutes
# at least, and for up to twice that: two oracles on a machine, each one of the other's others, take turns.


class Idleness:
    """Looks every few seconds at what others use; to be asked by the thread that trains.

    Attributes:
        free: whether nobody else works here.
    """

    def __init__(
        self,
        devices: Sequence[torch.device],
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
        cards: Sequence[Card] | None = None,
    ) -> None:
        """Begin; until the contrary is seen, nobody does. ``clock``, ``draw``, ``cards``: for tests."""
        self.free = True
        self._draw, self._patience = draw, QUIET_SECONDS
        self._clock, self._cards = clock, cards_of(devices) if cards is None else cards
        self._looked, self._busy_since, self._quiet_since = clock(), math.inf, math.inf
        self._used, _ = _used_by_others(_ours())

    def look(self, *, computing: bool) -> None:
        """Look, if it is time to; takes about 10 ms then. ``computing``: whether this oracle trains now."""
        now = self._clock()
        if (seconds := now - self._looked) < LOOK_SECONDS:
            return
        ours = _ours()
        used, cores = _used_by_others(ours)
        load = (used - self._used) / seconds / cores / CORES_MAX
        self._looked, self._used = now, used
        pids = [process.pid for process in ours]
        for card in self._cards:
            load = max(load, (card.used_by_others(pids, computing=computing) or 0.0) / GPU_MAX)
        self._note(now, seconds, load)

    def _note(self, now: float, seconds: float, load: float) -> None:
        """For so many seconds until ``now`` others have used so much ÷ what makes them count."""
        begun = now - seconds
        self._busy_since = min(self._busy_since, begun) if load > 1 else math.inf
        self._quiet_since = min(self._quiet_since, begun) if load < QUIET_RATIO else math.inf
        if now - self._busy_since >= BUSY_SECONDS:
            self.free, self._patience = False, QUIET_SECONDS * (1 + self._draw())
        elif now - self._quiet_since >= self._patience:
            self.free = True


def _used_by_others(ours: list[psutil.Process]) -> tuple[float, int]:
    """CPU seconds, and on how many cores."""
    used, cores = used_seconds()
    for process in ours:
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        # Those of children that have ended count too: else what they used would become that of others.
        used -= times.user + times.system + times.children_user + times.children_system
    return used, cores


def _ours() -> list[psutil.Process]:
    """This process, its node, and what they have started."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]
