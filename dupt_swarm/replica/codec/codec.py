"""What a codec is, the one that a manifest names, and the parts in which a vector is encoded.

A vector is encoded part by part, so that parts can travel, be averaged and be checked on their own.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Protocol

from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.replica.blob import CHUNK_BYTES
from dupt_swarm.replica.codec.fp32 import FP32
from dupt_swarm.replica.codec.int4 import Int4
from dupt_swarm.replica.codec.int8 import Int8
from dupt_swarm.replica.codec.scaled_fp16 import ScaledFP16
from dupt_swarm.replica.codec.top_k import TopK
from dupt_swarm.replica.codec.two_bit import TwoBit

PART_VALUES = CHUNK_BYTES // 4  # fp32: one part of a vector is one chunk of the anchor in the replica state


class Codec(Protocol):
    """Turns flat fp32 tensors into bytes and back."""

    @property
    def name(self) -> str:
        """As the manifest has it."""

    def encode(self, values: Tensor) -> bytes:
        """The bytes of ``values`` (fp32, ``[n]``, finite, on any device); computed where they are."""

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        """The values encoded in ``data``: fp32 ``[numel]`` on the CPU, in newly allocated memory.

        Raises:
            ValueError: ``data`` is not an encoding of ``numel`` values; nothing large was allocated.
        """

    def encoded_bytes(self, numel: int) -> int:
        """How many bytes any ``numel`` values become."""


def all_codecs(encoding: Encoding) -> dict[str, Codec]:
    """All that there are, by name, as ``encoding`` has them."""
    every: list[Codec] = [FP32(), ScaledFP16(), Int8(), Int4(), TwoBit(), TopK(encoding.kept)]
    return {codec.name: codec for codec in every}


def build_codec(name: str, encoding: Encoding) -> Codec:
    """The codec called ``name``, as ``encoding`` has it: its `contribution` or its `average`."""
    return all_codecs(encoding)[name]


def part_sizes(numel: int) -> list[int]:
    """How many values each part of a vector of ``numel`` values has: all alike but for the last."""
    return [min(PART_VALUES, numel - start) for start in range(0, numel, PART_VALUES)]


def part_slices(codec: Codec, numel: int) -> list[slice]:
    """Where each part lies in the bytes of an encoded vector of ``numel`` values."""
    ends = accumulate(map(codec.encoded_bytes, part_sizes(numel)), initial=0)
    return [slice(*pair) for pair in pairwise(ends)]


def encoded_size(codec: Codec, numel: int) -> int:
    """How many bytes an encoded vector of ``numel`` values has."""
    return sum(map(codec.encoded_bytes, part_sizes(numel)))


def check_size(codec: Codec, data: bytes | memoryview, numel: int) -> None:
    """Refuse the bytes of a vector by their number alone.

    Raises:
        ValueError: ``numel`` values have another.
    """
    expected = encoded_size(codec, numel)
    if len(data) != expected:
        raise ValueError(f"{len(data)} bytes are not {numel} encoded values, which have {expected}")
