"""How many threads PyTorch computes with on a CPU that others use too.

OpenMP splits each operation evenly among its threads, and those that are done early spin while they wait.
Alone that is fastest. Where others need the cores it is the slowest way of all: every operation waits for the
thread whose core is taken, while its siblings burn the time that the others wait for. So PyTorch gets as
many threads as there are cores that nobody else uses, looked at once a second: one to begin with, more
once nobody else has used the cores for a while, fewer soon after others come.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

import torch

from dupt_swarm.learning.cores import quota, used_seconds

LOOK_SECONDS = 1.0
CROWDED_SECONDS = 2.0  # a burst of a second, as at the end of a round, is no reason to give way
FIRST_QUIET_SECONDS = 1.0
QUIET_SECONDS = 5.0
QUIET_SECONDS_MAX = 320.0
LASTING_SECONDS = 30.0


class ThreadRule:
    """Decides on the number of threads from the cores that others leave; arithmetic only.

    It starts with one thread, since a first step with all of them beside another such step would take many
    times as long; `FIRST_QUIET_SECONDS` later it takes what is free. It gives way once it was crowded for two
    seconds, and takes cores back after a quiet while of `QUIET_SECONDS` to twice that, drawn at random, so
    that of several oracles on a machine one comes first.
    If the cores turn out to be needed after all within `LASTING_SECONDS`, the next quiet while must be twice
    as long: several that all see the same free core do not go up and down together forever.

    Attributes:
        threads: how many there should be now.
    """

    def __init__(self, most: int, now: float, draw: Callable[[], float] = random.random) -> None:
        """Start at ``now``; there are never more than ``most``. ``draw`` gives numbers from 0 to 1."""
        self.threads, self._most = 1, most
        self._draw = draw
        self._looked, self._crowded_since = now, math.inf
        self._quiet_until: float | None = None
        self._quiet_seconds = FIRST_QUIET_SECONDS
        self._raised = -math.inf

    def look(self, now: float, room: float) -> int:
        """The number of threads from now on.

        Args:
            now: in seconds, from any origin.
            room: how many cores other processes did not use since the last look.
        """
        free = max(1, min(self._most, math.floor(room + 0.5)))
        # A crowded step may take many times as long as another: then a single look has seen enough.
        self._crowded_since = min(self._crowded_since, self._looked) if free < self.threads else math.inf
        self._looked = now
        if free <= self.threads:
            self._quiet_until = None
        if now - self._crowded_since >= CROWDED_SECONDS:
            self._lower(now, free)
        elif free > self.threads:
            self._raise_when_quiet(now, free)
        return self.threads

    def _lower(self, now: float, free: int) -> None:
        too_early = now - self._raised < LASTING_SECONDS
        longer = min(2 * self._quiet_seconds, QUIET_SECONDS_MAX) if too_early else 0.0
        self._quiet_seconds = max(QUIET_SECONDS, longer)
        self.threads, self._crowded_since = free, math.inf

    def _raise_when_quiet(self, now: float, free: int) -> None:
        if self._quiet_until is None:
            self._quiet_until = now + self._quiet_seconds * (1 + self._draw())
        elif now >= self._quiet_until:
            self.threads, self._raised, self._quiet_until = free, now, None


class Threads:
    """Keeps PyTorch's threads to what the machine has room for; to be used by the thread that trains."""

    def __init__(
        self, fixed: int | None = None, *, computing: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin.

        Args:
            fixed: always so many; None: PyTorch's own number (or OMP_NUM_THREADS) at most.
            computing: whether the CPU trains. Where a GPU does, all threads move vectors to and from it a few
                times in a round, and their number stays: a compiled model is compiled anew for another one.
            clock: seconds.
        """
        most = fixed or min(torch.get_num_threads(), quota())
        self._clock = clock
        self._looked, self._others = clock(), _used_by_others()[0]
        adapts = fixed is None and most > 1 and computing
        self._rule = ThreadRule(most, self._looked) if adapts else None
        self._set(self._rule.threads if self._rule else most)

    def adapt(self) -> None:
        """Look at the machine if a second has passed since the last time, and follow it; takes 30 µs."""
        if self._rule is None:
            return
        now = self._clock()
        seconds = now - self._looked
        if seconds < LOOK_SECONDS:
            return
        others, cores = _used_by_others()
        room = cores - (others - self._others) / seconds
        self._looked, self._others = now, others
        self._set(self._rule.look(now, room))

    def _set(self, threads: int) -> None:
        if threads != torch.get_num_threads():
            torch.set_num_threads(threads)


def threads_to_spare() -> int:
    """How many threads the machine has room for, judged by the next second: for who must keep to a number."""
    most = min(torch.get_num_threads(), quota())
    if most == 1:
        return 1
    before, _ = _used_by_others()
    started = time.monotonic()
    time.sleep(LOOK_SECONDS)
    others, cores = _used_by_others()
    room = cores - (others - before) / (time.monotonic() - started)
    return max(1, min(most, math.floor(room + 0.5)))


def _used_by_others() -> tuple[float, int]:
    """CPU seconds of other processes on the cores that this one may run on, and how many these are."""
    used, cores = used_seconds()
    return used - time.process_time(), cores
