"""Encoded examples: cut into batches, split by hash, and dealt out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.epochs import EpochBatches

Tokens = np.ndarray[tuple[int], np.dtype[np.int32]]
ExampleBatch = tuple[Tensor, Tensor, Tensor]
HELD_OUT_FRACTION = 0.1


@dataclass(frozen=True)
class Examples:
    """Examples of a task, encoded.

    Attributes:
        sequences: the sequences of each, int32 [length] each.
        labels: [N], int64 or fp32; zeros if there are none.
        tokens_per_example: what an example counts for in a swarm's rounds: the model's context.
        truncated: how many had a text that was too long.
        empty: how many had a text without a single character.
        left_out: how many of those are not among these examples.
    """

    sequences: list[tuple[Tokens, ...]]
    labels: Tensor
    tokens_per_example: int
    truncated: int = 0
    empty: int = 0
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def sequences_max(self) -> int:
        """The most sequences of any example."""
        return max(map(len, self.sequences))

    @property
    def length_max(self) -> int:
        """The length of the longest sequence."""
        return max(len(sequence) for sequences in self.sequences for sequence in sequences)

    def batch(self, indices: Sequence[int]) -> ExampleBatch:
        """Some examples: ``(tokens, lengths, labels)``, int64 [B, S, T], int64 [B, S] and [B].

        S and T are the most that any of them has; lengths are 0 for sequences that are not there.
        """
        chosen = [self.sequences[index] for index in indices]
        most = max(map(len, chosen))
        lengths = np.zeros((len(chosen), most), dtype=np.int64)
        for row, sequences in zip(lengths, chosen, strict=True):
            row[: len(sequences)] = [len(sequence) for sequence in sequences]
        tokens = np.zeros((*lengths.shape, lengths.max()), dtype=np.int64)
        for rows, sequences in zip(tokens, chosen, strict=True):
            for row, sequence in zip(rows, sequences, strict=False):
                row[: len(sequence)] = sequence
        labels = self.labels[torch.tensor(indices, dtype=torch.int64)]
        return torch.from_numpy(tokens), torch.from_numpy(lengths), labels

    def in_order(self, batch_size: int) -> Iterator[ExampleBatch]:
        """All examples once, in batches."""
        for start in range(0, len(self), batch_size):
            yield self.batch(range(start, min(start + batch_size, len(self))))

    def split(self, seed: int) -> tuple[Examples, Examples]:
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

    def digest(self) -> str:
        """What these examples are, in a word: SHA-256 of all, hexadecimal."""
        every = hashlib.sha256(self.labels.numpy().tobytes())
        for index in range(len(self)):
            every.update(self._bytes(index))
        return every.hexdigest()

    def _select(self, indices: Sequence[int]) -> Examples:
        return replace(
            self,
            sequences=[self.sequences[index] for index in indices],
            labels=self.labels[torch.tensor(indices, dtype=torch.int64)],
        )

    def _hash(self, index: int, seed: int) -> int:
        digest = hashlib.sha256(f"{seed}\n".encode() + self._bytes(index)).digest()
        return int.from_bytes(digest[:8], "big")

    def _bytes(self, index: int) -> bytes:
        return b"".join(len(part).to_bytes(4) + part.tobytes() for part in self.sequences[index])


class LabelledBatches(EpochBatches[ExampleBatch]):
    """The examples of one peer without end, in an order of its own in each epoch.

    Iterating gives what `Examples.batch` does. The state counts examples, so it fits any batch size.

    Attributes:
        tokens_per_example: what an example counts for in the swarm's rounds, however long it is.
    """

    def __init__(
        self, examples: Examples, batch_size: int, seed: int, peer: str, *, across_epochs: bool = True
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
            raise CorpusError("there are no labelled examples to train on; give some")
        self.tokens_per_example = examples.tokens_per_example
        self._examples, self._batch_size = examples, batch_size
        super().__init__(len(examples), seed, peer)
        self._deal_out = self._take if across_epochs else self._take_of_one

    def __next__(self) -> ExampleBatch:
        """The next ``(tokens, lengths, labels)``, on the CPU."""
        return self._examples.batch(self._deal_out(self._batch_size))
