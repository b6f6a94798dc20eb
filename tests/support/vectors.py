"""Encoded vectors as a whole: nodes have them in parts only, and an oracle encodes with `ErrorFeedback`."""

import torch
from torch import Tensor

from dupt_swarm.replica.codec import Codec, check_size, part_sizes, part_slices


def encode_parts(codec: Codec, values: Tensor) -> bytes:
    """The bytes of ``values`` (fp32, ``[n]``, finite, on any device): those of its parts, in order."""
    return b"".join(map(codec.encode, torch.split(values, part_sizes(values.numel()))))


def decode_parts(codec: Codec, data: bytes | memoryview, numel: int) -> Tensor:
    """The values of a vector that `encode_parts` encoded: fp32 ``[numel]`` on the CPU.

    Raises:
        ValueError: ``data`` is not an encoding of ``numel`` values.
    """
    check_size(codec, data, numel)
    values = torch.empty(numel)
    for place, part in zip(part_slices(codec, numel), torch.split(values, part_sizes(numel)), strict=True):
        part.copy_(codec.decode(data[place], part.numel()))
    return values
