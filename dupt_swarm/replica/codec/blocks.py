"""Blocks of values that share a scale.

A scale is a bfloat16: it has the range of fp32, so that gradients of 1e-9 and of 1e6 need no care, and its
8 bits of precision are enough, since whoever encodes divides by the scale as the others will read it. Times
a small whole number it is exact in fp32, so that decoding rounds nothing.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from dupt_swarm.replica.codec.received import as_tensor

SCALE_BYTES = 2
# Below the least one a block is zero in practice; with the largest one 128 × scale is still finite.
SCALES = (2.0**-100, 2.0**120)


class Blocks:
    """Blocks of ``size`` values, each with a scale and ``bits`` bits per value; the last is filled up.

    Attributes:
        name: of the codec.
        size: values of a block.
        bits: of the code of a value; ``size`` × ``bits`` is a multiple of 8.
    """

    name: ClassVar[str]
    size: ClassVar[int]
    bits: ClassVar[int]

    def encoded_bytes(self, numel: int) -> int:
        """How many bytes ``numel`` values become."""
        return self._count(numel) * (SCALE_BYTES + self.size * self.bits // 8)

    def cut(self, values: Tensor) -> Tensor:
        """``values`` (fp32 ``[n]``) as ``[blocks, size]``, with zeros after them."""
        missing = self._count(values.numel()) * self.size - values.numel()
        return (pad(values, (0, missing)) if missing else values).view(-1, self.size)

    def unpack(self, data: bytes | memoryview, numel: int) -> tuple[Tensor, Tensor]:
        """The scales (fp32 ``[blocks, 1]``) and the codes (uint8, flat) that `pack` put together.

        Raises:
            ValueError: it cannot have made ``data`` of ``numel`` values.
        """
        if len(data) != self.encoded_bytes(numel):
            raise ValueError(f"{len(data)} bytes are not {numel} values in {self.name}")
        every, end = as_tensor(data), SCALE_BYTES * self._count(numel)
        return read_scales(every[:end]).view(-1, 1), every[end:]

    def _count(self, numel: int) -> int:
        return math.ceil(numel / self.size)


def round_scales(scales: Tensor) -> Tensor:
    """``scales`` (fp32, not negative) as they will be read: bfloat16, zero or within `SCALES`."""
    least, largest = SCALES
    return scales.clamp(max=largest).mul_(scales >= least).to(torch.bfloat16)


def divisor(scales: Tensor) -> Tensor:
    """What to divide values by, fp32: their scale, or 1 where it is zero and codes do not matter."""
    return torch.where(scales > 0, scales, 1).float()


def read_scales(data: Tensor) -> Tensor:
    """Scales of which these are the bytes (uint8), as fp32.

    Raises:
        ValueError: one of them is none of `round_scales`.
    """
    scales = data.view(torch.bfloat16).float()
    least, largest = SCALES
    if not ((scales == 0) | (scales >= least) & (scales <= largest)).all():  # nor is NaN
        raise ValueError("impossible scale of a block")
    return scales


def as_bytes(*tensors: Tensor) -> bytes:
    """The bytes of ``tensors``, one after another."""
    flat = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat(flat).cpu().numpy().tobytes()
