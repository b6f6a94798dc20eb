"""Reads a number out of a cell."""

from __future__ import annotations

import math


def number_in(value: object) -> float:
    """The number that a cell holds, spelt out or not; NaN if it holds none."""
    if not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan
