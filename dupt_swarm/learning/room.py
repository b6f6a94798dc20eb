"""How many sequences a GPU has room for at once, and what gives way: measured on it in the first second.

What a step takes grows evenly with its sequences, so two small ones tell; formulas that count activations are
wrong by a third for the next kind of block, and a step that does not fit costs its compilation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn

from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
from dupt_swarm.learning.batches import Batch, count_examples
from dupt_swarm.learning.device import as_written, autocast, free_memory, is_out_of_memory

USED = 0.9  # of what is free: the allocator's blocks do not fit together without gaps
SMALL, LARGE = 1, (4, 2)  # sequences that are tried out, of large ones the first that has room


@dataclass(frozen=True)
class Saving:
    """What is done to need less of a GPU's memory.

    Attributes:
        offload: the moments are in the main memory, see `Offloaded`.
        checkpointing: activations are computed again, see `checkpoint_activations`.
    """

    offload: bool = False
    checkpointing: bool = False

    def __str__(self) -> str:
        """In words."""
        moments = ["moments wait in the main memory"] if self.offload else []
        return ", ".join(moments + ["activations are computed again"] * self.checkpointing)

    @classmethod
    def ways(cls, offload: bool | None, checkpointing: bool | None, moments: int = 2) -> Iterator[Saving]:
        """Those to try in turn, what costs least first; None: only where there is no room otherwise.

        Moments come and go once in a step, however long that takes; to compute again always costs a quarter.
        ``moments``: how many the optimizer has of each weight; where there are none, none can give way.
        """
        offload = offload if moments else False
        found = cls(bool(offload), bool(checkpointing))
        yield found
        if offload is None:
            yield (found := replace(found, offload=True))
        if checkpointing is None:
            yield replace(found, checkpointing=True)


NOTHING = Saving()


def make_room(
    model: nn.Module,
    batch_of: Callable[[int], Batch],
    most: int,
    device: torch.device,
    moment_bytes: int,
    ways: Iterable[Saving],
    part: float = 1.0,
) -> tuple[int, Saving]:
    """How many sequences, ``most`` at most, can be trained on at once, and in which way.

    The first way will do in which there is room for one sequence, and if there is none in any, the last; the
    model is left so.

    Args:
        model: ``model(*batch)`` is a loss; on ``device`` already, without gradients.
        batch_of: a batch of so many sequences, or fewer if there are not so many.
        most: more are not asked for.
        device: any; other than on a GPU all of ``most`` have room.
        moment_bytes: what the optimizer remembers, and has not yet.
        ways: at least one.
        part: of all memory that the device has, what this process may take at most; see `limit_memory`.
    """
    for way in ways:
        checkpoint_activations(model, wanted=way.checkpointing)
        later = 0 if way.offload else moment_bytes  # moments visit when activations have gone
        sequences = sequences_that_fit(model, batch_of, most, device, later, part)
        if sequences:
            break
    return max(1, sequences), way


def sequences_that_fit(
    model: nn.Module,
    batch_of: Callable[[int], Batch],
    most: int,
    device: torch.device,
    later_bytes: int,
    part: float = 1.0,
) -> int:
    """How many sequences there is room for, none included; ``later_bytes`` is what comes besides.

    See `make_room`.
    """
    if device.type != "cuda":
        return most
    with torch.random.fork_rng(devices=[device]):
        small = batch_of(SMALL)
        _peak(model, small, device)  # the first one also has what libraries take once and keep
        needed = _peak(model, small, device)
        room = USED * (_free_bytes(device, part) - later_bytes) - needed
        if room < 0:
            return 0
        for sequences in (min(count, most) for count in LARGE):
            large = batch_of(sequences)
            if math.isfinite(for_more := _peak(model, large, device)):
                break
    more = count_examples(large) - count_examples(small)
    each = max(1.0, (for_more - needed) / more) if more else math.inf
    return int(min(most, (count_examples(small) + room // each) * sequences // count_examples(large)))


def _free_bytes(device: torch.device, part: float) -> int:
    free, total = torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_allocated(device)
    return min(free + torch.cuda.memory_reserved(device) - taken, int(part * total) - taken)


def _peak(model: nn.Module, batch: Batch, device: torch.device) -> float:
    """Bytes that forward and backward take of ``device`` at most, gradients included; infinite: too many."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    try:
        _compute(model, batch, device)
        found: float = torch.cuda.max_memory_allocated(device) - before
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        found = math.inf
    model.zero_grad(set_to_none=True)
    free_memory(device)
    return found


def _compute(model: nn.Module, batch: Batch, device: torch.device) -> None:
    with as_written(model), autocast(device):
        loss = model(*(tensor.to(device) for tensor in batch))
    loss.backward()
