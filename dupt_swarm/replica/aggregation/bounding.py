"""What one contribution may count for at most, whoever made it and whatever it claims."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from dupt_swarm.replica.aggregation.sums import combine, products, shares_of
from dupt_swarm.replica.draw import drawn

WEIGHT_MAX = 2.0  # × the median weight
NEWCOMER = 0.25  # a newcomer moves the state by a quarter of what a voter does

Parts = Callable[[], Iterable[list[Tensor]]]
"""Contributions, decoded anew at each call: all first parts, then all second ones; fp32 ``[n]`` each."""


@dataclass(frozen=True)
class Weighting:
    """For how much a contribution counts.

    Attributes:
        part: of what it counts by itself.
        judges: whether it is asked where most go, and what is usual.
    """

    part: float = 1.0
    judges: bool = True


FULL = Weighting()


def weightings(makers: Sequence[str], electorate: Container[str], state: str) -> list[Weighting]:
    """For how much each contribution counts: fully a member's, a quarter a newcomer's.

    Keys are cheap. So newcomers together have no more weight than members, however many they are; and no
    more of them than members are asked where most go, as a rule can bear that less than half are hostile.
    Where no member contributes, all count alike.

    Args:
        makers: ids of the peers that contribute.
        electorate: of the state before the round.
        state: its digest, from which follows which newcomers are asked: each round others.
    """
    newcomers = [maker for maker in makers if maker not in electorate]
    if len(newcomers) == len(makers):
        return [FULL] * len(makers)
    asked = set(drawn(newcomers, state)[: len(makers) - len(newcomers)])
    return [Weighting() if maker in electorate else Weighting(NEWCOMER, maker in asked) for maker in makers]


@dataclass(frozen=True)
class Bounded:
    """A round's sound contributions, in the agreed order, with what each may count for.

    Attributes:
        parts: their values; whoever asks for them may use them up.
        radius: the median of their norms; none counts with a larger one.
        scales: what to multiply each by, so that it does not, and a newcomer counts for less: 1 at most.
        shares: of the weight of all; together they are 1.
        evens: their weights, where each counts once whatever it says.
        standings: for how much each counts by itself: 1, or less, a newcomer's.
        judges: places of those that are asked where most go.
    """

    parts: Parts
    radius: float
    scales: list[float]
    shares: list[float]
    evens: list[float]
    standings: list[float]
    judges: list[int]

    @classmethod
    def of(
        cls,
        parts: Parts,
        norms: Sequence[float],
        weights: Sequence[float],
        weightings: Sequence[Weighting] = (),
    ) -> Bounded:
        """Bound contributions of these norms and weights; for ``weightings`` see there.

        Medians, since less than half of a group cannot move them out of what the others have; the lower of
        the two in the middle, so that half cannot raise it. Of two contributions, therefore, neither counts
        with a larger norm than the other has; one alone counts as it is. Newcomers move no median.
        """
        found = weightings or [FULL] * len(norms)
        full = [place for place, each in enumerate(found) if each.part == 1] or range(len(norms))
        radius = statistics.median_low(norms[place] for place in full)
        usual = statistics.median_low(weights[place] for place in full)
        return cls(
            parts,
            radius,
            [
                each.part * (radius / norm if norm > radius else 1.0)
                for norm, each in zip(norms, found, strict=True)
            ],
            shares_of(_together([min(weight, WEIGHT_MAX * usual) for weight in weights], full)),
            _together([1.0] * len(weights), full),
            [each.part for each in found],
            [place for place, each in enumerate(found) if each.judges] or list(range(len(norms))),
        )

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.shares)

    def products(self) -> list[list[float]]:
        """Of every two contributions, as bounded; see `sums.products`."""
        found = products(self.parts(), self.count)
        return [
            [one * other * value for other, value in zip(self.scales, row, strict=True)]
            for one, row in zip(self.scales, found, strict=True)
        ]

    def combined(self, coefficients: Sequence[float]) -> Iterator[Tensor]:
        """The sum of all, as bounded, each times its coefficient: part after part."""
        scaled = [coefficient * scale for coefficient, scale in zip(coefficients, self.scales, strict=True)]
        for parts in self.parts():
            yield combine(parts, scaled)


def _together(weights: list[float], full: Collection[int]) -> list[float]:
    """The weights, with those that do not count fully lowered until together they have no more than those."""
    members = math.fsum(weights[place] for place in full)
    others = math.fsum(weight for place, weight in enumerate(weights) if place not in full)
    if others <= members:
        return weights
    return [weight if place in full else weight * (members / others) for place, weight in enumerate(weights)]
