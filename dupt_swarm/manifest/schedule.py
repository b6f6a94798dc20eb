"""The table `[schedule]`: learning rates and growing rounds, bit-identical on every machine.

Only operations that IEEE 754 rounds exactly: `math.cos` and `pow` differ between C libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import accumulate, count, takewhile
from typing import Literal, Self

from pydantic import Field, model_validator

from dupt_swarm.manifest.table import Table


class Schedule(Table):
    """The learning rate over updates: linear warm-up from 0 to the peak, then a decay.

    An update is an inner step with `diloco` (inner learning rate) and a round with `gradient`
    (outer learning rate). Its number follows from the swarm's round, so late joiners agree on it.
    """

    decay: Literal["cosine", "linear", "inverse_sqrt"] = Field(
        default="cosine", description="after the peak; `inverse_sqrt` falls with 1 ÷ √update, without an end"
    )
    warmup_updates: int = Field(ge=0, description="updates from 0 to the peak")
    total_updates: int = Field(ge=1, description="updates until the end of the decay")
    constant_updates: int = Field(
        default=0, ge=0, description="updates at the peak before the decay; with `linear` that is WSD"
    )
    final_ratio: float = Field(
        default=0.0, ge=0, le=1, description="last rate ÷ peak, or what it comes near; 1: constant"
    )

    @model_validator(mode="after")
    def _warmup_ends(self) -> Self:
        if self.warmup_updates + self.constant_updates >= self.total_updates:
            constant = f" + constant_updates = {self.constant_updates}" if self.constant_updates else ""
            raise ValueError(
                f"warmup_updates = {self.warmup_updates}{constant} must be less than "
                f"total_updates = {self.total_updates}"
            )
        return self

    def factor(self, update: float) -> float:
        """The learning rate at ``update`` (from 0, may be fractional) ÷ its peak, from 0 to 1.

        Only operations that IEEE 754 rounds exactly: with `gradient` every peer must get the same bits.
        """
        if update < self.warmup_updates:
            return (update + 1) / (self.warmup_updates + 1)
        begin = self.warmup_updates + self.constant_updates
        if update < begin:
            return 1.0
        left = DECAYS[self.decay](update - begin, begin, self.total_updates)
        return self.final_ratio + (1 - self.final_ratio) * left


Decay = Callable[[float, int, int], float]


def cosine(since: float, begin: int, end: int) -> float:
    """Half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983, equation 5)."""
    return 0.5 * (1 + cosine_of_pi_times(_done(since, begin, end)))


def linear(since: float, begin: int, end: int) -> float:
    """A straight line; after a constant rate that is warm-up, stable, decay (arXiv:2404.06395, section 4)."""
    return 1 - _done(since, begin, end)


def inverse_sqrt(since: float, begin: int, _end: int) -> float:
    """√(begin ÷ update), which never ends (Vaswani et al. 2017, section 5.3)."""
    return math.sqrt((begin + 1) / (begin + 1 + since))  # IEEE 754 rounds square roots exactly


def _done(since: float, begin: int, end: int) -> float:
    return min(1.0, since / (end - begin))


DECAYS: dict[str, Decay] = {"cosine": cosine, "linear": linear, "inverse_sqrt": inverse_sqrt}


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


def cosine_of_pi_times(x: float) -> float:
    """cos(πx) for 0 ≤ x ≤ 1 by its Taylor series around 1/2: `math.cos` differs between C libraries."""
    angle = 3.141592653589793 * (0.5 - x)
    term = total = angle
    for n in range(3, 25, 2):
        term *= -angle * angle / (n * (n - 1))
        total += term
    return max(-1.0, min(1.0, total))  # rounding may leave the range by one bit


def power(base: float, exponent: int) -> float:
    """``base ** exponent`` by squaring: `pow` differs between C libraries."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
