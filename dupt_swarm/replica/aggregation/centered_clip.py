"""Centered clipping (Karimireddy et al. 2020, arXiv 2012.10333), as BTARD has it (arXiv 2106.11257)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.sums import combine, products

Matrix = Sequence[Sequence[float]]


class CenteredClip:
    """v ← v + mean of (xᵢ − v)·min(1, τ / |xᵢ − v|), from the mean on, again and again.

    Contributions that are farther than τ from the average pull it with the strength of one at τ; each
    counts once, whatever its weight. All v are sums of contributions, so their products say how far each
    is, and only the last v is computed.
    """

    def __init__(self, radius: float, iterations: int) -> None:
        """``radius``: τ ÷ the median norm."""
        self._radius, self._iterations = radius, iterations

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        scales, found = bounded.scales, products(bounded.parts(), bounded.count)
        clipped = [
            [one * other * value for other, value in zip(scales, row, strict=True)]
            for one, row in zip(scales, found, strict=True)
        ]
        center = self._center(clipped, self._radius * bounded.radius)
        coefficients = [weight * scale for weight, scale in zip(center, scales, strict=True)]
        for parts in bounded.parts():
            yield combine(parts, coefficients)

    def _center(self, matrix: Matrix, radius: float) -> list[float]:
        """What v is made of: the coefficient of each contribution."""
        count = len(matrix)
        center = [1 / count] * count
        for _ in range(self._iterations):
            pulls = [(radius / far if far > radius else 1.0) / count for far in _distances(matrix, center)]
            left = 1 - math.fsum(pulls)
            center = [left * old + pull for old, pull in zip(center, pulls, strict=True)]
        return center


def _distances(matrix: Matrix, center: Sequence[float]) -> list[float]:
    """How far each contribution is from their sum with the coefficients ``center``."""
    towards = [math.fsum(a * b for a, b in zip(row, center, strict=True)) for row in matrix]
    square = math.fsum(a * b for a, b in zip(towards, center, strict=True))
    return [math.sqrt(max(0.0, row[place] - 2 * towards[place] + square)) for place, row in enumerate(matrix)]
