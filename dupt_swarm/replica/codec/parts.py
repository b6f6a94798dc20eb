"""A whole vector as a codec encodes it: part by part, in order."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dupt_swarm.replica.codec import Codec

PART_VALUES = 262_144  # 1 MiB of fp32: a chunk of the anchor in a replica state


def encode_parts(codec: Codec, values: Tensor) -> bytes:
    """The bytes of ``values`` (fp32, ``[n]``, finite): those of its parts, one after another."""
    return b"".join(codec.encode(values[place]) for place, _ in part_slices(codec, values.numel()))


def part_slices(codec: Codec, numel: int) -> Iterator[tuple[slice, slice]]:
    """Where each part of ``numel`` values is: among the values, and among their bytes."""
    at = 0
    for start in range(0, numel, PART_VALUES):
        end = min(start + PART_VALUES, numel)
        length = codec.encoded_bytes(end - start)
        yield slice(start, end), slice(at, at + length)
        at += length


def encoded_bytes(codec: Codec, numel: int) -> int:
    """The bytes of ``numel`` values."""
    return sum(place.stop - place.start for _, place in part_slices(codec, numel))
