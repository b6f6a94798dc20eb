"""Cuts a split into blocks of k + 1 tokens and deals them out as batches.

Block i covers the tokens i·k to i·k + k inclusive: its first k are inputs, its last k the targets, so every
token but the very first is a target once per epoch. A last block that is not full is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.epochs import EpochBatches
from dupt_swarm.learning.shards import Split
from dupt_swarm.manifest import Manifest

Batch = tuple[torch.Tensor, ...]  # what a model takes; each with an example per row
Blocks = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, k] each


class Batches(EpochBatches[Blocks]):
    """The training blocks of one peer without end, in an order of its own in each epoch.

    Iterating gives ``(inputs, targets)``, int64 [batch_size, k] each. An epoch deals out every block exactly
    once; a batch may span two epochs. The state counts blocks, so it fits any batch size.

    Attributes:
        blocks: how many there are.
        tokens_per_example: k, the targets of a block.
    """

    def __init__(self, split: Split, context_length: int, batch_size: int, seed: int, peer: str) -> None:
        """``seed`` and ``peer`` decide the order of the blocks.

        Raises:
            CorpusError: the split is shorter than a block.
        """
        self.blocks = count_blocks(split, context_length)
        self._split = split
        self._context_length = self.tokens_per_example = context_length
        self._batch_size = batch_size
        super().__init__(self.blocks, seed, peer)

    def __next__(self) -> Blocks:
        """The next ``(inputs, targets)``, int64 [batch_size, k] each, on the CPU."""
        blocks = [(self._split, block) for block in self._epochs.take(self._batch_size)]
        return read_blocks(blocks, self._context_length)


def held_out_batches(
    split: Split, context_length: int, batch_size: int, max_blocks: int | None = None
) -> Iterator[Blocks]:
    """The first ``max_blocks`` blocks, or all, in order: ``(inputs, targets)``, int64 [≤ batch_size, k] each.

    Raises:
        CorpusError: the split is shorter than a block.
    """
    blocks = count_blocks(split, context_length)
    blocks = blocks if max_blocks is None else min(blocks, max_blocks)
    return (
        read_blocks(
            [(split, block) for block in range(start, min(start + batch_size, blocks))], context_length
        )
        for start in range(0, blocks, batch_size)
    )


def count_examples(batch: Batch) -> int:
    """How many examples a batch has."""
    return len(batch[0])


def count_blocks(split: Split, context_length: int) -> int:
    """How many whole blocks there are in ``split``.

    Raises:
        CorpusError: the split is shorter than a block.
    """
    blocks = (len(split) - 1) // context_length
    if blocks < 1:
        raise CorpusError(
            f"there are {len(split)} tokens, but one block needs {context_length + 1}; give more text"
        )
    return blocks


def read_blocks(blocks: Sequence[tuple[Split, int]], context_length: int) -> Blocks:
    """``(inputs, targets)``, int64 [blocks, k] each: of each block its split and its number there."""
    tokens = np.empty((len(blocks), context_length + 1), dtype=np.int64)
    for row, (split, block) in zip(tokens, blocks, strict=True):
        start = block * context_length
        row[:] = split.read(start, start + context_length + 1)
    batch = torch.from_numpy(tokens)
    return batch[:, :-1].contiguous(), batch[:, 1:].contiguous()


def cut_step(manifest: Manifest, batch_size: int) -> tuple[int, int]:
    """Sequences in a micro-batch, at most ``batch_size``, and micro-batches in an inner step."""
    sequences = manifest.rounds.tokens_per_step // manifest.model.context_length
    micro_batches = next(
        count
        for count in range(1, sequences + 1)
        if sequences % count == 0 and sequences // count <= batch_size
    )
    return sequences // micro_batches, micro_batches
