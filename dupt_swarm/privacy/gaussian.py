"""The Gaussian mechanism on one vector: clip, add noise, and go back to the ball that it was clipped to.

The noise comes from the operating system's cryptographic generator, so nobody can draw it again from a seed:
not the manifest's, and not this machine's.
"""

from __future__ import annotations

import math
import os

import torch
from torch import Tensor

DRAWN_AT_ONCE = 1 << 18
_MANTISSA = 1 << 53  # what fp64 can tell apart between 0 and 1


def privatize(values: Tensor, clip: float, noise: float) -> None:
    """Clip ``values`` to the norm ``clip``, add noise of the deviation ``noise`` × ``clip``, and clip again.

    The first clipping bounds what two corpora can differ by, and the noise hides that. The second one needs
    no corpus, and so costs no privacy: the vector is known to lie within the ball, so whatever lies outside
    is noise.

    Args:
        values: fp32 ``[n]`` on the CPU, finite; overwritten.
        clip: the largest norm that comes in, and goes out.
        noise: of each value, ÷ ``clip``: the noise multiplier (Abadi et al. 2016).
    """
    norm = _norm(values)
    scale = min(1.0, clip / norm) if norm else 1.0
    for part in torch.split(values, DRAWN_AT_ONCE):
        # In fp64, so that rounding neither exceeds the bound nor shows what the values were before.
        part.copy_(part.double().mul_(scale).add_(gaussian(part.numel()).mul_(noise * clip)))
    norm = _norm(values)
    if norm > clip:
        values.mul_(clip / norm)


def gaussian(count: int) -> Tensor:
    """Standard normal numbers, fp64 ``[count]``, by Box and Muller's transform of the system's randomness."""
    half = (count + 1) // 2
    bits = torch.frombuffer(bytearray(os.urandom(16 * half)), dtype=torch.int64)
    uniform = bits.bitwise_and(_MANTISSA - 1).double().add_(0.5).div_(_MANTISSA)  # neither 0 nor 1
    radius = uniform[:half].log_().mul_(-2.0).sqrt_()
    angle = uniform[half:].mul_(2.0 * math.pi)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count]


def _norm(values: Tensor) -> float:
    squares = (float(part.double().square_().sum()) for part in torch.split(values, DRAWN_AT_ONCE))
    return math.sqrt(math.fsum(squares))
