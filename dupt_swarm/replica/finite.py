"""Whether all numbers of a vector are finite."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def all_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite: one pass over the memory, without a copy.

    Both extremes are NaN if any value is, and their difference is not finite if either is infinite.
    """
    if not values.numel():
        return True
    lowest, highest = torch.aminmax(values)
    return math.isfinite(float(highest) - float(lowest))
