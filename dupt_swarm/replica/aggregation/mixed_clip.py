"""Centered clipping of what neighbours have in common: nearest-neighbour mixing (Allouah et al. 2023).

(arXiv 2302.01772, "Fixing by Mixing".) Oracles with texts of their own contribute vectors that lie far
apart, and attackers who all send the same look like the densest place. What an honest contribution and
those nearest to it have in common is much the same for all honest ones, which so become the densest place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.centered_clip import Matrix, center, dot


class MixedClip:
    """In place of each contribution the mean of it and its neighbours, and then centered clipping.

    Neighbours are those of the most similar direction. By distance, a vector near zero would be everybody's.
    """

    def __init__(self, hostile: float, radius: float, iterations: int) -> None:
        """``hostile``: the part of the contributions that are nobody's neighbours; see `CenteredClip`."""
        self._hostile, self._radius, self._iterations = hostile, radius, iterations

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        products = bounded.products()
        mixes = _mixes(products, bounded.count - int(self._hostile * bounded.count))
        towards = [[dot(row, mix) for row in products] for mix in mixes]
        mixed = [[dot(row, mix) for mix in mixes] for row in towards]
        found = center(mixed, self._radius * bounded.radius, self._iterations)
        return bounded.combined([dot(column, found) for column in zip(*mixes, strict=True)])


def _mixes(products: Matrix, neighbours: int) -> list[list[float]]:
    """The coefficients of the contributions in what takes the place of each."""
    norms = [math.sqrt(row[place]) or 1.0 for place, row in enumerate(products)]
    mixes = []
    for row in products:
        likeness = [product / norm for product, norm in zip(row, norms, strict=True)]
        nearest = set(sorted(range(len(row)), key=likeness.__getitem__, reverse=True)[:neighbours])
        mixes.append([1 / neighbours if place in nearest else 0.0 for place in range(len(row))])
    return mixes
