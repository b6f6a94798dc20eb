"""Sign and one of two magnitudes, with a scale for each 1,024 values: 0.252 bytes per value."""

from __future__ import annotations

import torch
from torch import Tensor

from dupt_swarm.replica.codec.blocks import Blocks, as_bytes, divisor, round_scales


class TwoBit(Blocks):
    """A `Codec`: levels −3c, −c, c and 3c, c = half the block's root mean square; 0, ±2c lie between them.

    For values of a normal distribution these are nearly the levels of least squared error, ±0.453 σ and
    ±1.510 σ with 0.982 σ between them (Max 1960, table I). It needs error feedback: zeros become ±c.
    A byte has one code of each quarter of all values: whole quarters are shifted at once.
    """

    name, size, bits = "two_bit", 1024, 2

    def encode(self, values: Tensor) -> bytes:
        blocks = self.cut(values)
        scales = round_scales(_root_mean_square(blocks, values.numel()) / 2)
        levels = (blocks / divisor(scales)).mul_(0.5).floor_().clamp_(-2, 1).add_(2)
        first, second, third, fourth = levels.to(torch.int8).view(torch.uint8).view(-1).chunk(4)
        return as_bytes(scales, first | second << 2 | third << 4 | fourth << 6)

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        scales, codes = self.unpack(data, numel)
        levels = torch.cat([codes & 3, codes >> 2 & 3, codes >> 4 & 3, codes >> 6])
        numbers = levels.view(torch.int8).mul_(2).sub_(3)
        return numbers.view(-1, self.size).float().mul_(scales).view(-1)[:numel]


def _root_mean_square(blocks: Tensor, numel: int) -> Tensor:
    """Of the values of each block, ``[blocks, 1]``; what the last one was filled up with does not count."""
    # Squares of very small or large values would leave fp32's range: the largest becomes 1 first.
    largest = blocks.abs().amax(1, keepdim=True)
    norms: Tensor = torch.linalg.vector_norm(blocks / divisor(largest), dim=1, keepdim=True)
    counts = torch.full_like(largest, blocks.shape[1])
    counts[-1:].sub_(blocks.numel() - numel)
    return largest * norms / counts.sqrt()
