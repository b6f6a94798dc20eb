"""The rules of aggregation that a manifest may name."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.sums import shares_of

# Least likeness to the others, ÷ the median. Honest ones were seen down to 0.31, noise up to 0.19.
AGREEMENT = 0.15

Matrix = Sequence[Sequence[float]]


Rule = Callable[[Bounded], Iterator[Tensor]]
"""Makes one average of contributions, part after part: fp32 ``[n]`` each, the same bits on any machine."""


def mean(bounded: Bounded) -> Iterator[Tensor]:
    """Σ wᵢ·xᵢ / Σ wᵢ, each xᵢ clipped to the median norm."""
    return bounded.combined(bounded.shares)


def agreeing_mean(bounded: Bounded) -> Iterator[Tensor]:
    """The mean of those contributions that agree with most others, without what they undo of one another.

    Each step is against something that a minority can do, and does nothing where honest contributions lie as
    far apart as texts of different kinds make them:

    - Who points away from most is left out: see `agreeing`. A minority cannot move that median.
    - What several say alike counts hardly more than once: see `crowds`.
    - Of two that point against each other each yields: see `without_conflicts`. Honest ones hardly ever do.

    Each contribution counts once, whatever its weight. All follows from products of two contributions.
    """
    products = bounded.products()
    norms = [math.sqrt(row[place]) or 1.0 for place, row in enumerate(products)]
    cosines = [
        [value / (norm * other) for value, other in zip(row, norms, strict=True)]
        for norm, row in zip(norms, products, strict=True)
    ]
    kept = [
        even if agrees else 0.0
        for even, agrees in zip(bounded.evens, agreeing(cosines, bounded.judges), strict=True)
    ]
    masses = [even * standing for even, standing in zip(kept, bounded.standings, strict=True)]
    weights = shares_of([even / crowd for even, crowd in zip(kept, crowds(cosines, masses), strict=True)])
    return bounded.combined(without_conflicts(products, cosines, weights, bounded.standings))


RULES: dict[str, Rule] = {"mean": mean, "agreeing_mean": agreeing_mean}


def agreeing(cosines: Matrix, judges: Sequence[int]) -> list[bool]:
    """Which contributions are to those asked about as they are to one another.

    Honest ones with texts of their own lie far apart, but have something in common with each other. So the
    lower median of a contribution's cosines to all that are asked, itself included, is that to an honest one
    while less than half are hostile; noise has none, and what points back a negative one.

    Args:
        cosines: of every two contributions.
        judges: places of those that are asked.
    """
    likeness = [statistics.median_low(row[place] for place in judges) for row in cosines]
    asked = [likeness[place] for place in judges]
    # Where all point elsewhere the median is negative, and the nearest is farther than a part of it.
    least = min(AGREEMENT * statistics.median_low(asked), max(asked))
    return [each >= least for each in likeness]


def crowds(cosines: Matrix, masses: Sequence[float]) -> list[float]:
    """By how much to divide the weight of each contribution, as others say the same: 1 if nobody does.

    1 + Σ mⱼ·cos²ᵢⱼ over those j that point the same way, so that copies of a contribution count like one;
    an idea of Fung et al. 2018 (arXiv 1808.04866), who distrust what is alike altogether.

    Args:
        cosines: of every two contributions.
        masses: m, of how much each counts; 0: not at all.
    """
    return [
        1 + math.fsum(masses[j] * row[j] * row[j] for j in range(len(row)) if j != i and row[j] > 0)
        for i, row in enumerate(cosines)
    ]


def without_conflicts(
    products: Matrix, cosines: Matrix, weights: Sequence[float], standings: Sequence[float]
) -> list[float]:
    """The coefficients of the weighted sum, where each contribution has yielded to those that oppose it.

    Gradient surgery (Yu et al. 2020, arXiv 2001.06782): one after another, the most opposed first, what a
    contribution has against another is taken out of it: less, where the other has less than half as much in
    common with all, and nothing where it has nothing in common with them, or is a newcomer's and this is not.

    Args:
        products: of every two contributions.
        cosines: of the same.
        weights: of the sum; who has none is not asked.
        standings: 1 of members, less of newcomers.
    """
    places = [place for place, weight in enumerate(weights) if weight]
    moving = [weight * standing for weight, standing in zip(weights, standings, strict=True)]
    common = [max(0.0, _dot(moving, row)) for row in cosines]
    found = [0.0] * len(weights)
    for place in places:
        left = [0.0] * len(weights)
        left[place] = 1.0
        opposed = [
            other for other in places if cosines[place][other] < 0 and standings[other] >= standings[place]
        ]
        for other in sorted(opposed, key=cosines[place].__getitem__):
            against = _dot(left, products[other])
            if against < 0:
                both = common[place] + common[other]
                part = min(1.0, 3 * common[other] / both) if both else 1.0
                left[other] -= part * against / products[other][other]
        found = [total + weights[place] * each for total, each in zip(found, left, strict=True)]
    return found


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    """Σ aᵢ·bᵢ, of which `math.fsum` rounds the sum once, whatever the order."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
