"""A vector is encoded part by part, so that parts can travel, be averaged and be checked on their own."""

from __future__ import annotations

from itertools import accumulate, pairwise

from dupt_swarm.replica.blob import CHUNK_BYTES
from dupt_swarm.replica.codec.codec import Codec

PART_VALUES = CHUNK_BYTES // 4  # fp32: one part of a vector is one chunk of the anchor in the replica state


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
