"""What encoded examples of every kind have in common: they are split by hash, and dealt out in batches."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import numpy as np
from torch import Tensor

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.epochs import EpochBatches
from dupt_swarm.learning.interruptible import Look

Tokens = np.ndarray[tuple[int], np.dtype[np.int32]]
Batch = TypeVar("Batch", bound=tuple[Tensor, ...])
HELD_OUT_FRACTION = 0.1


@dataclass(frozen=True)
class Encoded(ABC, Generic[Batch]):
    """Examples, encoded.

    Attributes:
        sequences: the sequences of each, int32 [length] each.
        tokens_per_example: what an example counts for in a swarm's rounds: the model's context.
        truncated: how many had a text that was too long.
        empty: how many rows had an empty text; they are left out, unless they were to be kept.
    """

    sequences: list[tuple[Tokens, ...]]
    tokens_per_example: int
    truncated: int
    empty: int

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    @abstractmethod
    def sequences_max(self) -> int:
        """The most sequences of the model's that any example takes."""

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> Batch:
        """Some examples, as the model takes them."""

    def _select(self, indices: Sequence[int]) -> Self:
        """Some examples, as examples."""
        return replace(self, sequences=[self.sequences[index] for index in indices])

    @property
    def length_max(self) -> int:
        """The length of the longest sequence."""
        return max(len(sequence) for sequences in self.sequences for sequence in sequences)

    def in_order(self, batch_size: int, look: Look = lambda *_: None) -> Iterator[Batch]:
        """All examples once, in batches, with a look before each."""
        starts = range(0, len(self), batch_size)
        for number, start in enumerate(starts):
            look(number, len(starts))
            yield self.batch(range(start, min(start + batch_size, len(self))))

    def some(self, most: int, first: int = 0) -> Self:
        """At most so many of them, from the ``first`` on, counted around the end."""
        return self._select([(first + place) % len(self) for place in range(min(most, len(self)))])

    def split(self, seed: int) -> tuple[Self, Self]:
        """Those to train on, and about a tenth that is held out, at least one; equal ones stay together.

        Which are held out follows from the seed and each example alone.

        Raises:
            CorpusError: there are not two different ones.
        """
        hashes = [self._hash(index, seed) for index in range(len(self))]
        if len(set(hashes)) < 2:
            raise CorpusError(
                f"there are {len(self)} examples, and no two different ones, but one is held out from "
                "training; give more examples"
            )
        limit = max(min(hashes), int(HELD_OUT_FRACTION * 2**64))
        limit = min(limit, max(hashes) - 1)
        held_out = [index for index, one in enumerate(hashes) if one <= limit]
        train = [index for index, one in enumerate(hashes) if one > limit]
        return self._select(train), self._select(held_out)

    def _hash(self, index: int, seed: int) -> int:
        digest = hashlib.sha256(f"{seed}\n".encode() + self._bytes(index)).digest()
        return int.from_bytes(digest[:8], "big")

    def _bytes(self, index: int) -> bytes:
        return b"".join(len(part).to_bytes(4) + part.tobytes() for part in self.sequences[index])


class EncodedBatches(EpochBatches[Batch]):
    """The examples of one peer without end, in an order of its own in each epoch.

    Iterating gives what `Encoded.batch` does. The state counts examples, so it fits any batch size.

    Attributes:
        tokens_per_example: what an example counts for in the swarm's rounds, however long it is.
    """

    def __init__(
        self, examples: Encoded[Batch], batch_size: int, seed: int, peer: str, *, across_epochs: bool = True
    ) -> None:
        """``seed`` and ``peer`` decide the order.

        Args:
            examples: to be dealt out.
            batch_size: of each batch.
            seed: the manifest's.
            peer: whose examples these are.
            across_epochs: a batch may span two epochs; otherwise the last one of an epoch may be smaller.

        Raises:
            CorpusError: there are no examples.
        """
        if not len(examples):
            raise CorpusError("there are no examples to train on; give some")
        self.tokens_per_example = examples.tokens_per_example
        self._examples, self._batch_size = examples, batch_size
        super().__init__(len(examples), seed, peer)
        self._deal_out = self._take if across_epochs else self._take_within_epoch

    def __next__(self) -> Batch:
        """The next batch, on the CPU."""
        return self._examples.batch(self._deal_out(self._batch_size))
