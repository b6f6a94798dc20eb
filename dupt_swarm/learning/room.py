"""How many sequences a GPU has room for at once: measured on it in the first second, not estimated.

What a step takes grows evenly with its sequences, so two small ones tell; formulas that count activations are
wrong by a third for the next kind of block, and a step that does not fit costs its compilation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from dupt_swarm.learning.batches import Batch, count_examples
from dupt_swarm.learning.device import as_written, autocast, free_memory, is_out_of_memory

USED = 0.9  # of what is free: the allocator's blocks do not fit together without gaps
SMALL, LARGE = 1, 4  # sequences that are tried out


def sequences_that_fit(
    model: nn.Module,
    batch_of: Callable[[int], Batch],
    most: int,
    device: torch.device,
    later_bytes: int,
    part: float = 1.0,
) -> int:
    """How many sequences, ``most`` at most, can be trained on at once.

    Args:
        model: ``model(*batch)`` is a loss; on ``device`` already, without gradients.
        batch_of: a batch of so many sequences, or fewer if there are not so many.
        most: more are not asked for.
        device: any; other than on a GPU ``most`` is the answer.
        later_bytes: what training takes besides, and has not yet.
        part: of all memory that the device has, what this process may take at most; see `limit_memory`.
    """
    if device.type != "cuda" or most == 1:
        return most
    try:
        with torch.random.fork_rng(devices=[device]):
            small, large = (batch_of(min(count, most)) for count in (SMALL, LARGE))
            _peak(model, small, device)  # the first one also has what libraries take once and keep
            needed, for_more = _peak(model, small, device), _peak(model, large, device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return 1  # the trainer says what to do if that does not fit either
    more = count_examples(large) - count_examples(small)
    each = max(1.0, (for_more - needed) / more) if more else float("inf")
    free, total = torch.cuda.mem_get_info(device)
    taken = torch.cuda.memory_allocated(device)
    free = min(free + torch.cuda.memory_reserved(device) - taken, int(part * total) - taken)
    room = USED * (free - later_bytes) - needed
    examples = count_examples(small) + max(0.0, room // each)
    return int(max(1, min(most, examples * min(LARGE, most) // count_examples(large))))


def _peak(model: nn.Module, batch: Batch, device: torch.device) -> int:
    """Bytes that forward and backward take of ``device`` at most, gradients included."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with as_written(model), autocast(device):
        loss = model(*(tensor.to(device) for tensor in batch))
    loss.backward()
    found = torch.cuda.max_memory_allocated(device) - before
    del loss
    model.zero_grad(set_to_none=True)
    free_memory(device)
    return found
