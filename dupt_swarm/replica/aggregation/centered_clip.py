"""Centered clipping (Karimireddy et al. 2020, arXiv 2012.10333), as BTARD has it (arXiv 2106.11257)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded

Matrix = Sequence[Sequence[float]]


class CenteredClip:
    """v ← v + mean of (xᵢ − v)·min(1, τ / |xᵢ − v|), from the mean on, again and again.

    Contributions that are farther than τ from the average pull it with the strength of one at τ; each
    counts once, whatever its weight.
    """

    def __init__(self, radius: float, iterations: int) -> None:
        """``radius``: τ ÷ the median norm."""
        self._radius, self._iterations = radius, iterations

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        return bounded.combined(center(bounded.products(), self._radius * bounded.radius, self._iterations))


def center(products: Matrix, radius: float, iterations: int) -> list[float]:
    """What v is made of: the coefficient of each vector.

    All v are sums of the vectors, so their products say how far each is, and no v is computed.

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
    towards = [dot(row, center) for row in products]
    square = dot(towards, center)
    return [
        math.sqrt(max(0.0, row[place] - 2 * towards[place] + square)) for place, row in enumerate(products)
    ]


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Σ aᵢ·bᵢ, of which `math.fsum` rounds the sum once, whatever the order."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
