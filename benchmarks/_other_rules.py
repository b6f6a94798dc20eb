"""Rules of aggregation that the product does not have, for `byzantine.py` to compare with its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

from dupt_swarm.replica.aggregation import RULES, Bounded, Rule
from dupt_swarm.replica.aggregation.sums import combine

HOSTILE = 0.45  # the part of the contributions left out at either end; nearly the median
RADIUS, ITERATIONS = 0.1, 100  # of `center`; τ ÷ the median norm
_SLICE = 1 << 14  # values of each contribution that are sorted at once, in the processor's cache


def centered_clip(bounded: Bounded) -> Iterator[Tensor]:
    """v ← v + mean of (xᵢ − v)·min(1, τ / |xᵢ − v|), from the mean on, again and again; see `center`.

    Each contribution counts once, whatever its weight.
    """
    return bounded.combined(center(bounded.products(), RADIUS * bounded.radius))


def trimmed_mean(bounded: Bounded) -> Iterator[Tensor]:
    """Of each value the mean of the contributions' without the largest and the smallest ones.

    The coordinate-wise trimmed mean (Yin et al. 2018, arXiv 1803.01498). Each contribution counts once,
    whatever its weight.
    """
    cut = int(HOSTILE * bounded.count)
    kept = slice(cut, bounded.count - cut)
    for parts in bounded.parts():
        for part, scale in zip(parts, bounded.scales, strict=True):
            part *= scale
        for pieces in zip(*(torch.split(part, _SLICE) for part in parts), strict=True):
            in_order = _sorted(pieces)[kept]
            pieces[0].copy_(combine(in_order, [1 / len(in_order)] * len(in_order)))
        yield parts[0]


ALL_RULES: dict[str, Rule] = {**RULES, "trimmed_mean": trimmed_mean, "centered_clip": centered_clip}


def center(products: Sequence[Sequence[float]], radius: float) -> list[float]:
    """Where centered clipping of vectors ends: the coefficient of each in the sum v that is the center.

    Vectors that are farther than τ pull with the strength of one at τ (Karimireddy et al. 2020, arXiv
    2012.10333, as BTARD has it, arXiv 2106.11257). Their ``products`` say how far each is; ``radius`` is τ.
    """
    gram = torch.tensor(products, dtype=torch.float64)
    found = torch.full_like(gram[0], 1 / len(gram))
    for _ in range(ITERATIONS):
        towards = gram @ found
        far = (gram.diag() - 2 * towards + found @ towards).clamp_min(0).sqrt()
        pulls = radius / far.clamp_min(radius) / len(gram)
        found = (1 - pulls.sum()) * found + pulls
    return list(found.tolist())


def _sorted(rows: Sequence[Tensor]) -> list[Tensor]:
    """The rows' values sorted, column by column, the smallest in the first row; it uses up all but the first.

    By minima and maxima of whole rows, which takes a tenth of the time of PyTorch's sort.
    """
    spare, *places = torch.empty_like(rows[0]), rows[0].clone(), *rows[1:]
    for low, high in _network(len(rows)):
        torch.minimum(places[low], places[high], out=spare)
        torch.maximum(places[low], places[high], out=places[high])
        places[low], spare = spare, places[low]
    return places


@cache
def _network(count: int) -> list[tuple[int, int]]:
    """Which places to compare, one pair after another, to sort ``count``: Batcher's odd-even merge sort.

    (Batcher 1968, "Sorting networks and their applications".) It is the network for the next power of two;
    places beyond ``count`` would hold the largest values already.
    """
    pairs: list[tuple[int, int]] = []
    run = 1
    while run < count:
        gap = run
        while gap:
            for first in range(gap % run, count - gap, 2 * gap):
                for low in range(first, min(first + gap, count - gap)):
                    if low // (2 * run) == (low + gap) // (2 * run):
                        pairs.append((low, low + gap))
            gap //= 2
        run *= 2
    return pairs
