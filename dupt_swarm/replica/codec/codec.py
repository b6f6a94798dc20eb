"""What a codec is, and the one that a manifest names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.int4 import Int4
from dupt_swarm.replica.codec.int8 import Int8
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16
from dupt_swarm.replica.codec.top_k import TopK
from dupt_swarm.replica.codec.two_bit import TwoBit


class Codec(Protocol):
    """Turns flat fp32 tensors into bytes and back."""

    def encode(self, values: Tensor) -> bytes:
        """The bytes of ``values`` (fp32, ``[n]``, finite, on any device); computed where they are."""

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        """The values encoded in ``data``: fp32 ``[numel]`` on the CPU, in newly allocated memory.

        Raises:
            ValueError: ``data`` is not an encoding of ``numel`` values; nothing large was allocated.
        """

    def encoded_bytes(self, numel: int) -> int:
        """How many bytes any ``numel`` values become."""


CODECS: dict[str, Callable[[Encoding], Codec]] = {
    "fp32": lambda _: FP32(),
    "scaled_fp16": lambda _: ScaledFP16(),
    "int8": lambda _: Int8(),
    "int4": lambda _: Int4(),
    "two_bit": lambda _: TwoBit(),
    "top_k": lambda encoding: TopK(encoding.kept),
}


def build_codec(name: str, encoding: Encoding) -> Codec:
    """The codec called ``name``, as ``encoding`` has it: its `contribution` or its `average`."""
    return CODECS[name](encoding)
