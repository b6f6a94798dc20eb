"""What a rule of aggregation is, and the two that a manifest may name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torch import Tensor

from dupt_swarm.manifest import Aggregation
from dupt_swarm.replica.aggregation.bounding import Bounded

# Least likeness to the center, ÷ the median. Honest ones were seen down to 0.20, noise up to 0.13.
AGREEMENT = 0.15

Matrix = Sequence[Sequence[float]]


class Rule(Protocol):
    """Makes one average of contributions."""

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """The average, part after part: fp32 ``[n]`` each, with the same bits on any machine."""


class Mean:
    """Σ wᵢ·xᵢ / Σ wᵢ, each xᵢ clipped to the median norm."""

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        return bounded.combined(bounded.shares)


class AgreeingMean:
    """The plain mean without those contributions that do not agree with where the honest majority goes.

    So it is the plain mean where all agree, and no member's text is left out for being rare.

    Where the majority goes, nearest-neighbour mixing tells (Allouah et al. 2023, arXiv 2302.01772, "Fixing
    by Mixing"), and centered clipping of what was mixed. Oracles with texts of their own contribute vectors
    that lie far apart, and attackers who all send the same look like the densest place. What an honest
    contribution and those nearest to it have in common is much the same for all honest ones, which so become
    the densest place.
    """

    def __init__(self, hostile: float, radius: float, iterations: int) -> None:
        """Choose how the center is found.

        Args:
            hostile: the part of the contributions that are nobody's neighbours.
            radius: of `center`, ÷ the median norm.
            iterations: of `center`.
        """
        self._hostile, self._radius, self._iterations = hostile, radius, iterations

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`. Each contribution counts once, whatever its weight."""
        products, judges = bounded.products(), bounded.judges
        norms = [math.sqrt(row[place]) or 1.0 for place, row in enumerate(products)]
        neighbours = len(judges) - int(self._hostile * len(judges))
        mixes = [_mix(products[place], norms, judges, neighbours) for place in judges]
        towards = [[_dot(row, mix) for row in products] for mix in mixes]
        mixed = [[_dot(row, mix) for mix in mixes] for row in towards]
        found = center(mixed, self._radius * bounded.radius, self._iterations)
        likeness = [
            _dot(column, found) / norm for column, norm in zip(zip(*towards, strict=True), norms, strict=True)
        ]
        # Where all point elsewhere the median is negative, and the nearest is farther than a part of it.
        asked = [likeness[place] for place in judges]
        least = min(AGREEMENT * statistics.median_low(asked), max(asked))
        agreeing = [
            share if each >= least else 0.0 for each, share in zip(likeness, bounded.evens, strict=True)
        ]
        return bounded.combined([each / sum(agreeing) for each in agreeing])


RULES: dict[str, Callable[[Aggregation], Rule]] = {
    "mean": lambda _: Mean(),
    "agreeing_mean": lambda table: AgreeingMean(table.hostile, table.radius, table.iterations),
}


def build_rule(table: Aggregation) -> Rule:
    """The rule that the manifest's table `[aggregation]` names."""
    return RULES[table.rule](table)


def center(products: Matrix, radius: float, iterations: int) -> list[float]:
    """Where centered clipping of vectors ends: the coefficient of each in the sum v that is the center.

    From the mean on, v ← v + mean of (xᵢ − v)·min(1, τ / |xᵢ − v|), again and again: vectors that are farther
    than τ pull with the strength of one at τ (Karimireddy et al. 2020, arXiv 2012.10333, as BTARD has it,
    arXiv 2106.11257). Each v is a sum of the vectors, so their products say how far each is, and no v is
    computed.

    Args:
        products: of every two vectors.
        radius: τ.
        iterations: how often v moves.
    """
    count = len(products)
    found = [1 / count] * count
    for _ in range(iterations):
        pulls = [(radius / far if far > radius else 1.0) / count for far in _distances(products, found)]
        left = 1 - math.fsum(pulls)
        found = [left * old + pull for old, pull in zip(found, pulls, strict=True)]
    return found


def _distances(products: Matrix, center: Sequence[float]) -> list[float]:
    """How far each vector is from their sum with the coefficients ``center``."""
    towards = [_dot(row, center) for row in products]
    square = _dot(towards, center)
    return [
        math.sqrt(max(0.0, row[place] - 2 * towards[place] + square)) for place, row in enumerate(products)
    ]


def _mix(
    products: Sequence[float], norms: Sequence[float], judges: Sequence[int], neighbours: int
) -> list[float]:
    """The coefficients of what takes a contribution's place: the mean of it and its neighbours.

    Neighbours have the most similar directions. By distance, a vector near zero would be everybody's.
    """
    likeness = [product / norm for product, norm in zip(products, norms, strict=True)]
    nearest = set(sorted(judges, key=likeness.__getitem__, reverse=True)[:neighbours])
    return [1 / neighbours if place in nearest else 0.0 for place in range(len(norms))]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Σ aᵢ·bᵢ, of which `math.fsum` rounds the sum once, whatever the order."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
