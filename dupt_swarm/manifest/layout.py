"""What a swarm's vectors consist of: the shapes of a model's parameters, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

Layout = tuple[tuple[int, ...], ...]
"""The shape of each parameter, in the order of a model's ``parameters()``."""


class Shaped(Protocol):
    """A tensor, here where there is no torch."""

    @property
    def shape(self) -> Sequence[int]:
        """Its dimensions."""


def layout_of(parameters: Iterable[Shaped]) -> Layout:
    """The shapes of a model's parameters."""
    return tuple(tuple(parameter.shape) for parameter in parameters)


def count_values(layout: Layout) -> int:
    """The number of values in parameters of these shapes."""
    return sum(map(math.prod, layout))
