"""Labelled examples of a task, encoded, and cut into batches."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.learning.labelled.encoded import Encoded

ExampleBatch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Examples(Encoded[ExampleBatch]):
    """Examples of a task, encoded; see `Encoded`.

    Attributes:
        labels: [N], int64 or fp32; zeros if there are none.
    """

    labels: Tensor

    @property
    def sequences_max(self) -> int:
        """The most sequences of any example."""
        return max(map(len, self.sequences))

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

    def digest(self) -> str:
        """What these examples are, in a word: SHA-256 of all, hexadecimal."""
        every = hashlib.sha256(self.labels.numpy().tobytes())
        for index in range(len(self)):
            every.update(self._bytes(index))
        return every.hexdigest()

    def _select(self, indices: Sequence[int]) -> Self:
        labels = self.labels[torch.tensor(indices, dtype=torch.int64)]
        return replace(super()._select(indices), labels=labels)
