"""Logits to probabilities, for people to read."""

from __future__ import annotations

import math
from collections.abc import Sequence


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities that sum to 1."""
    highest = max(logits)
    exponentials = [math.exp(logit - highest) for logit in logits]
    return [exponential / sum(exponentials) for exponential in exponentials]
