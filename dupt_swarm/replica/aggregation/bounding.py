"""What one contribution may count for at most, whoever made it and whatever it claims."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from dupt_swarm.replica.aggregation.sums import combine, products, shares_of
from dupt_swarm.replica.draw import drawn

WEIGHT_MAX = 2.0  # × the median weight
NEWCOMER = 0.25  # a newcomer moves the state by a quarter of what a voter does

Parts = Callable[[], Iterable[list[Tensor]]]
"""Contributions, decoded anew at each call: all first parts, then all second ones; fp32 ``[n]`` each."""


def standings(makers: Sequence[str], voters: Container[str], state: str) -> list[float]:
    """For how much each contribution counts: 1 a voter's, 0.25 a newcomer's, 0 that of one newcomer too many.

    Keys are cheap, so there are never more newcomers than voters in an average: a rule can bear that less
    than half are hostile, and voters' norms and weights bound the others'. Where no voter contributes, all
    count alike.

    Args:
        makers: ids of the peers that contribute.
        voters: of the state before the round.
        state: its digest, from which follows who is one too many: each round somebody else.
    """
    newcomers = [maker for maker in makers if maker not in voters]
    if len(newcomers) == len(makers):
        return [1.0] * len(makers)
    admitted = set(drawn(newcomers, state)[: len(makers) - len(newcomers)])
    return [1.0 if maker in voters else NEWCOMER if maker in admitted else 0.0 for maker in makers]


@dataclass(frozen=True)
class Bounded:
    """A round's sound contributions, in the agreed order, with what each may count for.

    Attributes:
        parts: their values; whoever asks for them may use them up.
        radius: the median of their norms; none counts with a larger one.
        scales: what to multiply each by, so that it does not, and a newcomer counts for less: 1 at most.
        shares: of the weight of all; together they are 1.
    """

    parts: Parts
    radius: float
    scales: list[float]
    shares: list[float]

    @classmethod
    def of(
        cls,
        parts: Parts,
        norms: Sequence[float],
        weights: Sequence[float],
        standings: Sequence[float] = (),
    ) -> Bounded:
        """Bound contributions of these norms and weights; for ``standings`` see there.

        Medians, since less than half of a group cannot move them out of what the others have; the lower of
        the two in the middle, so that half cannot raise it. Of two contributions, therefore, neither counts
        with a larger norm than the other has; one alone counts as it is. Newcomers move no median.
        """
        counts = standings or [1.0] * len(norms)
        full = [place for place, count in enumerate(counts) if count == 1] or range(len(norms))
        radius = statistics.median_low(norms[place] for place in full)
        usual = statistics.median_low(weights[place] for place in full)
        return cls(
            parts,
            radius,
            [
                count * (radius / norm if norm > radius else 1.0)
                for norm, count in zip(norms, counts, strict=True)
            ],
            shares_of([min(weight, WEIGHT_MAX * usual) for weight in weights]),
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
