"""Functions with bit-identical results on every machine: only operations that IEEE 754 rounds exactly."""

from __future__ import annotations


def cosine_of_pi_times(x: float) -> float:
    """cos(πx) for 0 ≤ x ≤ 1 by its Taylor series around 1/2: `math.cos` differs between C libraries."""
    angle = 3.141592653589793 * (0.5 - x)
    term = total = angle
    for n in range(3, 25, 2):
        term *= -angle * angle / (n * (n - 1))
        total += term
    return max(-1.0, min(1.0, total))  # rounding may leave the range by one bit


def power(base: float, exponent: int) -> float:
    """``base ** exponent`` by squaring: `pow` differs between C libraries."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result
