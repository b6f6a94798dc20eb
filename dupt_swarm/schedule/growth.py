"""Rounds that grow: how many inner steps the first ones have, alike on every machine."""

from __future__ import annotations

from functools import cache
from itertools import accumulate, count, takewhile

from dupt_swarm.schedule.reproducible import power

LEAST_GROWTH = 1.01  # bounds the number of rounds that grow


@cache
def growing_rounds(growth: float, whole: float) -> tuple[int, ...]:
    """The inner steps of each round that is not whole yet: growthʳ, rounded down; none if ``growth`` is 1.

    Args:
        growth: 1, or at least `LEAST_GROWTH`.
        whole: inner steps of a whole round.
    """
    if growth == 1:
        return ()
    steps = (int(power(growth, round)) for round in count())
    return tuple(takewhile(lambda number: number < whole, steps))


@cache
def steps_before(growth: float, whole: float) -> tuple[int, ...]:
    """The inner steps made before each round that `growing_rounds` lists, and before the first whole one."""
    return tuple(accumulate(growing_rounds(growth, whole), initial=0))
