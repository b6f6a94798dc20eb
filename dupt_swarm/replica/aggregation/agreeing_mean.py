"""The mean of those that agree with where the honest majority goes.

Where that is, nearest-neighbour mixing tells (Allouah et al. 2023, arXiv 2302.01772, "Fixing by Mixing"),
and centered clipping of what was mixed. Oracles with texts of their own contribute vectors that lie far
apart, and attackers who all send the same look like the densest place. What an honest contribution and
those nearest to it have in common is much the same for all honest ones, which so become the densest place.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.centered_clip import center, dot

AGREEMENT = 0.2  # least likeness to the center, ÷ the median; honest ones were seen down to 0.21


class AgreeingMean:
    """The plain mean without those contributions that point elsewhere than the center of what neighbours mix.

    So it is the plain mean where all agree, and no member's text is left out for being rare.
    """

    def __init__(self, hostile: float, radius: float, iterations: int) -> None:
        """``hostile``: the part of the contributions that are nobody's neighbours; see `CenteredClip`."""
        self._hostile, self._radius, self._iterations = hostile, radius, iterations

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        products = bounded.products()
        norms = [math.sqrt(row[place]) or 1.0 for place, row in enumerate(products)]
        neighbours = bounded.count - int(self._hostile * bounded.count)
        mixes = [_mix(row, norms, neighbours) for row in products]
        towards = [[dot(row, mix) for row in products] for mix in mixes]
        mixed = [[dot(row, mix) for mix in mixes] for row in towards]
        found = center(mixed, self._radius * bounded.radius, self._iterations)
        likeness = [
            dot(column, found) / norm for column, norm in zip(zip(*towards, strict=True), norms, strict=True)
        ]
        # Where all point elsewhere the median is negative, and the nearest is farther than a part of it.
        least = min(AGREEMENT * statistics.median_low(likeness), max(likeness))
        agreeing = [float(each >= least) for each in likeness]
        return bounded.combined([each / sum(agreeing) for each in agreeing])


def _mix(products: Sequence[float], norms: Sequence[float], neighbours: int) -> list[float]:
    """The coefficients of what takes a contribution's place: the mean of it and its neighbours.

    Neighbours have the most similar directions. By distance, a vector near zero would be everybody's.
    """
    likeness = [product / norm for product, norm in zip(products, norms, strict=True)]
    nearest = set(sorted(range(len(norms)), key=likeness.__getitem__, reverse=True)[:neighbours])
    return [1 / neighbours if place in nearest else 0.0 for place in range(len(norms))]
