"""The lossless codec."""

from __future__ import annotations

import torch
from torch import Tensor


class FP32:
    """A `Codec`: little-endian IEEE 754 single precision: 4 bytes per value, exact."""

    name = "fp32"

    def encode(self, values: Tensor) -> bytes:
        return values.cpu().numpy().astype("<f4", copy=False).tobytes()

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        if len(data) != self.encoded_bytes(numel):
            raise ValueError(f"{len(data)} bytes are not {numel} fp32 values")
        if not numel:
            return torch.empty(0)
        return torch.frombuffer(bytearray(data), dtype=torch.float32)

    def encoded_bytes(self, numel: int) -> int:
        return 4 * numel
