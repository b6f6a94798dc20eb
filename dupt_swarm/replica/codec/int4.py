"""Whole numbers of 4 bits, with a scale for each 64 values: 0.531 bytes per value."""

from __future__ import annotations

import torch
from torch import Tensor

from dupt_swarm.replica.codec.blocks import Blocks, as_bytes, divisor, round_scales

_LARGEST = 7
_ZERO = 8  # codes are stored from 1 to 15


class Int4(Blocks):
    """A `Codec`: value ≈ code × scale, code from −7 to 7, scale = the block's largest magnitude ÷ 7.

    A value comes back within half a scale. A byte has a code of the first half of all values in its lower
    bits, and the one so far into the second half in its upper bits: whole halves are shifted at once.
    """

    name, size, bits = "int4", 64, 4

    def encode(self, values: Tensor) -> bytes:
        blocks = self.cut(values)
        scales = round_scales(blocks.abs().amax(1, keepdim=True) / _LARGEST)
        codes = (blocks / divisor(scales)).round_().clamp_(-_LARGEST, _LARGEST).add_(_ZERO)
        low, high = codes.to(torch.int8).view(torch.uint8).view(-1).chunk(2)
        return as_bytes(scales, low | high << 4)

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        scales, codes = self.unpack(data, numel)
        numbers = torch.cat([codes & 15, codes >> 4]).view(torch.int8).sub_(_ZERO)
        return numbers.view(-1, self.size).float().mul_(scales).view(-1)[:numel]
