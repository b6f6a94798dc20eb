"""Long work that its owner looks into, and may give up, between two batches.

The next look must never be far away: whoever stops a peer waits for it, and the screen stands still until
then. So on a CPU a batch holds few sequences of a large model, and an evaluation few batches. Both follow
from the model alone, not from a clock: a peer cuts its batches alike each time, so its losses are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import nn

# Half a second on two cores of a server with bf16, and less than ten on two without where other programs use
# them too: four times as much took up to thirty there.
BATCH_FLOP_MAX = 1 << 37
EVALUATION_FLOP_MAX = 1 << 41

Item = TypeVar("Item")
Look = Callable[[int, int], object]  # called with how many of how many are done; may raise `Abandoned`


class Abandoned(Exception):
    """Whoever looked in wants no more: the work ends without a result, and leaves no trace."""


def watched(batches: Iterable[Item], count: int, look: Look) -> Iterator[Item]:
    """``batches``, ``count`` of them, with a look before each."""
    for number, batch in enumerate(batches):
        look(number, count)
        yield batch


def parameter_count(model: nn.Module) -> int:
    """How many weights it has; a tied embedding counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def sequences_at_once(batch_size: int, parameters: int, context_length: int, device: torch.device) -> int:
    """How many sequences to train on between two looks: ``batch_size``, or fewer on a CPU, at least one.

    Forward and backward take about 6 FLOP per parameter and token (Kaplan et al. 2020).
    """
    if device.type != "cpu":
        return batch_size
    return max(1, min(batch_size, BATCH_FLOP_MAX // (6 * parameters * context_length)))


def held_out_sequences(most: int, parameters: int, context_length: int, device: torch.device) -> int:
    """How many sequences to evaluate on: ``most``, or fewer on a CPU, so that it is over in seconds."""
    if device.type != "cpu":
        return most
    return max(1, min(most, EVALUATION_FLOP_MAX // (2 * parameters * context_length)))
