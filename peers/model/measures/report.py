"""What was found out about a model, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from dupt_swarm.learning.threads import Threads
    from dupt_swarm.models.saved_model import SavedModel


@dataclass(frozen=True)
class Report:
    """The figures of one model on one corpus.

    Attributes:
        figures: for people, by name.
        tree: for programs; its numbers are finite, or None.
        notes: sentences that people need to understand the figures.
    """

    figures: Mapping[str, str]
    tree: Mapping[str, Any]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Machine:
    """Where to measure: the device, and what adapts the threads to others' load."""

    device: torch.device
    threads: Threads


Measure = Callable[["SavedModel", str, Machine, dict[str, Any]], Report]
"""Measures a model on the corpus at a path, with the command's options by their names."""


def finite(value: float) -> float | None:
    """JSON cannot represent non-finite numbers."""
    return value if math.isfinite(value) else None
