"""Which contributions are sound, whole or in parts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from dupt_swarm.replica.state import all_finite

# Between these, neither the square of the norm nor any square that matters to it leaves fp32.
NORMS = (2.0**-40, 2.0**60)


def screen_part(part: Tensor, weight: float, limit: float) -> str:
    """The reason to leave this part out, one word for the metrics; empty if it is sound.

    Args:
        part: decoded fp32 values, ``[n]``.
        weight: the tokens that the sender claims it was trained on.
        limit: the largest weight allowed.
    """
    if not (math.isfinite(weight) and 0 < weight <= limit):
        return "weight"
    if not all_finite(part):
        return "not_finite"
    return ""


def screen_norms(
    parts: Sequence[Tensor], weights: Sequence[float], ratio: float, usual: float = math.inf
) -> tuple[list[bool], float]:
    """Which parts to keep: see `keep_norms`. One reducer decides for all, so no bit of a norm matters.

    Returns:
        That, and their median norm.
    """
    norms = [norm_of(part) for part in parts]
    return keep_norms(norms, weights, ratio, usual), statistics.median(norms)


def norm_of(part: Tensor) -> float:
    """In fp32, and where squares may leave its range in fp64, which takes three times as long."""
    norm = float(torch.linalg.vector_norm(part))
    if not NORMS[0] < norm < NORMS[1]:
        norm = float(torch.linalg.vector_norm(part, dtype=torch.float64))
    return norm


def keep_norms(
    norms: Sequence[float],
    weights: Sequence[float],
    ratio: float,
    usual: float = math.inf,
    judges: Sequence[int] | None = None,
) -> list[bool]:
    """What to keep of that which has these norms: at most ``ratio`` × the median norm of the ``judges``.

    A peer that trained on more tokens than the median has moved further, so its norm may be larger in
    proportion. Two cannot outvote each other, so something is left out only among three or more.
    Where most are zero (embedding rows that few texts use), the ``usual`` norm stands for the median.
    """
    asked = range(len(norms)) if judges is None else judges
    if len(asked) < 3:
        return [True] * len(norms)
    median = statistics.median(norms[place] for place in asked) or usual
    median_weight = statistics.median(weights[place] for place in asked)
    return [
        norm <= ratio * median * max(1.0, weight / median_weight)
        for norm, weight in zip(norms, weights, strict=True)
    ]
