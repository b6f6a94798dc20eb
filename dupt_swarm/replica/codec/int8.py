"""Whole numbers of 8 bits, with a scale for each 1,024 values: 1.002 bytes per value."""

from __future__ import annotations

import torch
from torch import Tensor

from dupt_swarm.replica.codec.blocks import Blocks, as_bytes, divisor, round_scales

_LARGEST = 127


class Int8(Blocks):
    """A `Codec`: value ≈ code × scale, code from −127 to 127, scale = the block's largest magnitude ÷ 127.

    A value comes back within half a scale.
    """

    name, size, bits = "int8", 1024, 8

    def encode(self, values: Tensor) -> bytes:
        blocks = self.cut(values)
        scales = round_scales(blocks.abs().amax(1, keepdim=True) / _LARGEST)
        codes = (blocks / divisor(scales)).round_().clamp_(-_LARGEST, _LARGEST)
        return as_bytes(scales, codes.to(torch.int8))

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        scales, codes = self.unpack(data, numel)
        values = codes.view(torch.int8).view(-1, self.size).float()
        return values.mul_(scales).view(-1)[:numel]
