"""Dropout (Srivastava et al. 2014) with random numbers that cost a GPU little where the model is compiled.

PyTorch's compiler draws each number by ten rounds of Philox, of which it uses a quarter: for GPT-1 3 % of a
step on an H200. There a hash of a value's place and of two numbers drawn anew each time decides here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BITS = 32
# triple32 (Wellons, github.com/skeeto/hash-prospector): how far bits move down, and the factor that follows.
# With two factors, as in MurmurHash3, the masks of neighbours and of other draws go together by 1 %.
ROUNDS = ((17, 0xED5AD4BB), (11, 0xAC4C1B51), (15, 0x31848BAB))
LAST = 14
HASHED_ON = {"cuda"}  # kinds of devices


class Dropout(nn.Dropout):
    """Each value is 0 with probability p, and else divided by 1 − p; in training only."""

    def forward(self, x: Tensor) -> Tensor:
        """[…] to the same."""
        if not (self.training and self.p and torch.compiler.is_compiling() and x.device.type in HASHED_ON):
            return super().forward(x)
        drawn = torch.randint(-(1 << BITS - 1), (1 << BITS - 1) - 1, (2,), dtype=torch.int32, device=x.device)
        kept = hashed(x.shape, drawn) >= threshold(self.p)
        return torch.where(kept, x / (1 - self.p), 0.0)


def hashed(shape: torch.Size, drawn: Tensor) -> Tensor:
    """Int32 of ``shape``, each number as likely; other ``drawn``, int32 [2], give others."""
    mixed = torch.arange(shape.numel(), dtype=torch.int32, device=drawn.device).view(shape) ^ drawn[0]
    for number, (by, factor) in enumerate(ROUNDS):
        mixed = _folded(mixed, by) * (factor - (factor >> BITS - 1 << BITS))  # as int32
        if number == 0:
            mixed = mixed ^ drawn[1]
    return _folded(mixed, LAST)


def threshold(part: float) -> int:
    """Below which that part of all int32 numbers lies."""
    return round(part * (1 << BITS)) - (1 << BITS - 1)


def _folded(numbers: Tensor, by: int) -> Tensor:
    """Their upper bits in their lower ones; shifted as if they had no sign."""
    return numbers ^ ((numbers >> by) & ((1 << BITS - by) - 1))
