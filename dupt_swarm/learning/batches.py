"""Shuffled blocks of tokens, of one corpus or several, resumable."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.epochs import EpochBatches, shuffled
from dupt_swarm.learning.offered import OfferedBlocks
from dupt_swarm.learning.token_files import Split, blocks_in
from dupt_swarm.manifest import Manifest

EPOCH_BLOCKS_MAX = 1 << 24  # of a mixture with text that the swarm offers
Batch = tuple[torch.Tensor, ...]  # what a model takes; each with an example per row
Blocks = tuple[torch.Tensor, torch.Tensor]  # inputs and targets, int64 [B, k] each


class BatchSource(Protocol):
    """Endless batches, with a position that can be saved."""

    @property
    def tokens_per_example(self) -> int:
        """What an example counts for in the swarm's rounds, however long it is."""

    def __next__(self) -> Batch:
        """The next batch, on the CPU."""

    def state_dict(self) -> dict[str, Any]:
        """The position: which batch comes next."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Go on from a saved position."""


def held_out_batches(
    split: Split, context_length: int, batch_size: int, max_blocks: int | None = None, first: int = 0
) -> Iterator[Blocks]:
    """``max_blocks`` blocks, or all, in order: ``(inputs, targets)``, int64 [≤ batch_size, k] each.

    They begin with block ``first``, counted around the split's end.

    Raises:
        CorpusError: the split is shorter than a block.
    """
    count = count_blocks(split, context_length)
    blocks = count if max_blocks is None else min(count, max_blocks)
    return (
        read_blocks(
            [(split, (first + block) % count) for block in range(start, min(start + batch_size, blocks))],
            context_length,
        )
        for start in range(0, blocks, batch_size)
    )


def count_examples(batch: Batch) -> int:
    """How many examples a batch has."""
    return len(batch[0])


def pieces(batches: Iterable[Batch], at_once: int) -> Iterator[Batch]:
    """The same examples, so many at once at most."""
    for batch in batches:
        yield from zip(*(torch.split(tensor, at_once) for tensor in batch), strict=True)


def count_blocks(split: Split, context_length: int) -> int:
    """How many whole blocks there are in ``split``.

    Raises:
        CorpusError: the split is shorter than a block.
    """
    blocks = blocks_in(len(split), context_length)
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


class Batches(EpochBatches[Blocks]):
    """The training blocks of one peer without end, in an order of its own in each epoch.

    Iterating gives ``(inputs, targets)``, int64 [batch_size, k] each; a batch may span two epochs. The state
    counts blocks, so it fits any batch size and any mixture.

    Attributes:
        blocks: how many an epoch has of each corpus, and of the stream, if there is one, the last.
        tokens_per_example: k, the targets of a block.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        context_length: int,
        batch_size: int,
        seed: int,
        peer: str,
        weights: Sequence[float] = (1.0,),
        stream: OfferedBlocks | None = None,
    ) -> None:
        """``seed`` and ``peer`` decide the order of the blocks.

        Args:
            splits: the training tokens of each corpus.
            context_length: k.
            batch_size: blocks of each batch.
            seed: the manifest's.
            peer: whose batches these are.
            weights: of each split, and of the stream; positive. How many blocks that makes is rounded, to one
                at least.
            stream: more blocks, which come in their own order.

        Raises:
            CorpusError: a split is shorter than a block.
        """
        counts = [count_blocks(split, context_length) for split in splits]
        alone = len(weights) == 1  # a corpus has the order of the epoch then, a stream its own
        self._orders = [range(count) if alone else shuffled(count, seed, peer) for count in counts]
        counts += [stream.count] if stream is not None else []
        amounts = [count * (weight / max(weights)) for count, weight in zip(counts, weights, strict=True)]
        # A swarm may offer more than there is memory for the order of; what is not dealt out comes later.
        most = batch_size if alone else EPOCH_BLOCKS_MAX
        scale = 1.0 if stream is None else min(1.0, most / sum(amounts))
        self.blocks = [max(1, round(scale * amount)) for amount in amounts]
        self.tokens_per_example = self._context_length = context_length
        self._splits, self._stream, self._batch_size = splits, stream, batch_size
        self._ends = list(accumulate(self.blocks))
        super().__init__(self._ends[-1], seed, peer)

    def __next__(self) -> Blocks:
        """The next ``(inputs, targets)``, int64 [batch_size, k] each, on the CPU."""
        blocks: list[tuple[Split, int]] = []
        while len(blocks) < self._batch_size:
            numbers = self._take_within_epoch(self._batch_size - len(blocks))
            blocks += [self._find(self._epoch, number) for number in numbers]
        return read_blocks(blocks, self._context_length)

    def state_dict(self) -> dict[str, Any]:
        """See `EpochBatches`; and the stream's."""
        stream = {} if self._stream is None else {"stream": self._stream.state_dict()}
        return super().state_dict() | stream

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `EpochBatches`; a stream that is new begins anew."""
        super().load_state_dict(state)
        if self._stream is not None and isinstance(state.get("stream"), dict):
            self._stream.load_state_dict(state["stream"])

    def _find(self, epoch: int, number: int) -> tuple[Split, int]:
        """Which block of which corpus the ``number`` of an epoch means."""
        which = bisect_right(self._ends, number)
        if which == len(self._splits):
            assert self._stream is not None
            return self._stream.next()
        order, dealt = self._orders[which], self.blocks[which]
        of_corpus = epoch * dealt + number - (self._ends[which] - dealt)
        return self._splits[which], int(order[of_corpus % len(order)])
