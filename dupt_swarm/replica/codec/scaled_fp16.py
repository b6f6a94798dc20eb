"""fp16 with one shared exponent per part (block floating point).

Pseudo-gradients are small, and plain fp16 underflows below 6e-8. Scaling by a power of two is exact and
moves the part's largest value just under fp16's maximum, so values down to 2⁻²⁸ of it keep fp16's full
11 bits of precision.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from dupt_swarm.replica.codec.received import as_tensor

_HEADER = struct.Struct("<h")
_TOP_EXPONENT = 15  # the largest magnitude lands in [2^14, 2^15); fp16 ends at 65504
# Beyond these the scale factor itself would not fit in fp32; a part that small is zero in practice.
_SHIFTS = (-113, 100)


class ScaledFP16:
    """A `Codec`: a 2-byte exponent, then little-endian fp16 values: 2 bytes per value."""

    name = "scaled_fp16"

    def encode(self, values: Tensor) -> bytes:
        largest = max(abs(float(each)) for each in torch.aminmax(values)) if values.numel() else 0.0
        mantissa, exponent = torch.frexp(torch.tensor(largest))
        if mantissa.half() == 1:
            exponent += 1  # fp16 rounds it up to the next power of two, so that exponent counts
        shift = min(max(_TOP_EXPONENT - int(exponent), _SHIFTS[0]), _SHIFTS[1]) if largest else 0
        halves = (values * 2.0**shift).to(torch.float16)
        return _HEADER.pack(shift) + halves.cpu().numpy().astype("<f2", copy=False).data

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        if len(data) != self.encoded_bytes(numel):
            raise ValueError(f"{len(data)} bytes are not {numel} scaled fp16 values")
        (shift,) = _HEADER.unpack_from(data)
        if not _SHIFTS[0] <= shift <= _SHIFTS[1]:
            raise ValueError(f"impossible exponent {shift} in a scaled fp16 part")
        halves = as_tensor(data)[_HEADER.size :].view(torch.float16)
        return halves.float().mul_(2.0**-shift)

    def encoded_bytes(self, numel: int) -> int:
        return _HEADER.size + 2 * numel
