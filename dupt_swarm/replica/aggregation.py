"""What a reducer does with the parts it receives: screen each, then average those that are sound."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from dupt_swarm.replica.state import all_finite


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


def screen_norms(parts: Sequence[Tensor], weights: Sequence[float], ratio: float) -> list[bool]:
    """Which parts to keep: those whose norm is at most ``ratio`` × the median norm.

    A peer that trained on more tokens than the median has moved further, so its norm may be larger in
    proportion. Two parts cannot outvote each other, so parts are left out only among three or more.
    Where most parts are zero (embedding rows that few texts use), the others count as sound.
    """
    if len(parts) < 3:
        return [True] * len(parts)
    norms = [float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in parts]
    median, usual = statistics.median(norms), statistics.median(weights)
    return [
        median == 0 or norm <= ratio * median * max(1.0, weight / usual)
        for norm, weight in zip(norms, weights, strict=True)
    ]


def weighted_mean(parts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Σ wᵢ·xᵢ / Σ wᵢ over fp32 parts of one shape, summed in the given order."""
    total = math.fsum(weights)
    mean = parts[0] * (weights[0] / total)
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        mean += part * (weight / total)
    return mean
