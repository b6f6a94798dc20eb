"""Deals out blocks of several corpora as batches, some corpora more often than others.

An epoch has each block of the corpora with the greatest weight once, and of every other corpus a part, by the
ratio of the weights. All are shuffled together, so each batch is a sample of the mixture. The next epoch goes
on with the next part of a corpus, in an order that stays: so all of its blocks come equally often.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from dupt_swarm.learning.batches import Blocks, count_blocks, read_blocks
from dupt_swarm.learning.epochs import EpochBatches, shuffled
from dupt_swarm.learning.shards import Split


class MixedBatches(EpochBatches[Blocks]):
    """The training blocks of one peer without end, in an order of its own in each epoch.

    Iterating gives ``(inputs, targets)``, int64 [batch_size, k] each; a batch may span two epochs. The state
    counts blocks of the mixture, as that of `Batches` those of its only corpus.

    Attributes:
        blocks: how many an epoch has of each corpus.
        tokens_per_example: k, the targets of a block.
    """

    def __init__(
        self,
        splits: Sequence[Split],
        weights: Sequence[float],
        context_length: int,
        batch_size: int,
        seed: int,
        peer: str,
    ) -> None:
        """``seed`` and ``peer`` decide the order of the blocks.

        Args:
            splits: the training tokens of each corpus.
            weights: of each; positive. How many blocks that makes is rounded, to one at least.
            context_length: k.
            batch_size: blocks of each batch.
            seed: the manifest's.
            peer: whose batches these are.

        Raises:
            CorpusError: a split is shorter than a block.
        """
        counts = [count_blocks(split, context_length) for split in splits]
        self.blocks = [
            max(1, round(count * (weight / max(weights))))
            for count, weight in zip(counts, weights, strict=True)
        ]
        self.tokens_per_example = self._context_length = context_length
        self._splits, self._batch_size = splits, batch_size
        self._orders = [shuffled(count, seed, peer) for count in counts]
        self._ends = list(accumulate(self.blocks))
        super().__init__(self._ends[-1], seed, peer)

    def __next__(self) -> Blocks:
        """The next ``(inputs, targets)``, int64 [batch_size, k] each, on the CPU."""
        blocks: list[tuple[Split, int]] = []
        while len(blocks) < self._batch_size:
            numbers = self._epochs.take_of_one(self._batch_size - len(blocks))
            blocks += [self._find(self._epochs.epoch, number) for number in numbers]
        return read_blocks(blocks, self._context_length)

    def _find(self, epoch: int, number: int) -> tuple[Split, int]:
        """Which block of which corpus the ``number`` of an epoch means."""
        which = bisect_right(self._ends, number)
        order, dealt = self._orders[which], self.blocks[which]
        of_corpus = epoch * dealt + number - (self._ends[which] - dealt)
        return self._splits[which], int(order[of_corpus % len(order)])
