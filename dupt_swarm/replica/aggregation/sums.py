"""Sums over the values of contributions, with the same bits on any hardware.

A library adds in an order that depends on the machine. That does not matter where no addition rounds, and
where some do, the order is written out here, and done element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

# So many products of two numbers of so many bits add up to 2⁵³ at most: no whole number that fp64 rounds.
_SLICE = 1 << 15
_BITS = 19


def sum_of_squares(part: Tensor) -> float:
    """Σ x² over an fp32 part ``[n]``.

    The squares are exact in fp64, and are added in halves.
    """
    squares = part.double()
    squares *= squares
    length = len(squares)
    while length > 1:
        half = (length + 1) // 2
        squares[: length - half] += squares[half:length]
        length = half
    return float(squares[0]) if length else 0.0


def products(parts: Iterable[Sequence[Tensor]], count: int) -> list[list[float]]:
    """Σ xᵢ·xⱼ for every two of ``count`` vectors (their Gram matrix), within about a thousandth of |xᵢ|·|xⱼ|.

    Each part of a vector is rounded to whole numbers of 19 bits and a shared exponent. Sums of their products
    are whole numbers that fp64 holds, so that the fastest matrix product there is gives the same bits as any.
    At most 2⁻²⁰ of its largest value is lost of a value, so 2⁻¹¹ of its norm of a part.

    Args:
        parts: of all vectors the first parts, then the second ones, …: fp32 ``[n]`` each, finite.
        count: how many vectors there are.
    """
    total = torch.zeros(count, count, dtype=torch.float64)
    rounded = torch.empty(count, _SLICE, dtype=torch.float64)
    for alike in parts:
        # Products with powers of two are exact. (`torch.ldexp` may compute those in fp32.)
        scales = [math.ldexp(1.0, _exponent(part) - _BITS) for part in alike]
        units = torch.tensor(scales, dtype=torch.float64)
        sums = torch.zeros_like(total)
        for pieces in zip(*(torch.split(part, _SLICE) for part in alike), strict=True):
            rows = rounded[:, : len(pieces[0])]
            for row, piece, scale in zip(rows, pieces, scales, strict=True):
                row.copy_(piece).mul_(1.0 / scale).round_()
            sums += rows @ rows.T
        total += sums * units * units[:, None]
    return total.tolist()


def _exponent(part: Tensor) -> int:
    """The power of two just above the largest magnitude in a part."""
    largest = max(abs(float(each)) for each in torch.aminmax(part)) if part.numel() else 0.0
    return math.frexp(largest)[1]


def combine(parts: Sequence[Tensor], coefficients: Sequence[float]) -> Tensor:
    """Σ cᵢ·xᵢ over fp32 parts of one shape, summed in the given order; it uses up the parts.

    The sum is where the first one was: new memory would take longer than the arithmetic.
    """
    for part, coefficient in zip(parts, coefficients, strict=True):
        part *= coefficient
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def weighted_mean(parts: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Σ wᵢ·xᵢ / Σ wᵢ over fp32 parts of one shape; see `combine`."""
    return combine(parts, shares_of(weights))


def shares_of(weights: Sequence[float]) -> list[float]:
    """Each of ``weights`` ÷ their sum."""
    total = math.fsum(weights)
    return [weight / total for weight in weights]
