"""The largest values of each 4,096 only: with 64 of them, 0.028 bytes per value.

In the manner of SparseLoCo (Sarfi et al. 2025, arXiv 2508.15706).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from dupt_swarm.replica.codec.blocks import SCALE_BYTES, as_bytes, read_scales, round_scales
from dupt_swarm.replica.codec.received import as_tensor

_SIZE = 4096  # values of a block: a place in it has 12 bits


class TopK:
    """A `Codec`: of each block the values of largest magnitude; all others are zero. It needs error feedback.

    Of each value that is kept there is its place, its sign, and whether it is above the mean magnitude of
    all that are kept of its block: it comes back as the mean of those that are, or of those that are not.
    The bytes are the two scales of each block, all places, two in three bytes, and all codes, four in one.
    """

    name = "top_k"

    def __init__(self, kept: int) -> None:
        """``kept``: how many values of each 4,096; all, where a last block has no more."""
        self._kept = kept

    def encode(self, values: Tensor) -> bytes:
        chosen = [_choose(blocks, self._kept) for blocks in _cut(values)]
        if not chosen:
            return b""
        scales, places, codes = (
            torch.cat([*map(torch.flatten, alike)]) for alike in zip(*chosen, strict=True)
        )
        return as_bytes(scales, _pack_places(places), _pack_codes(codes))

    def decode(self, data: bytes | memoryview, numel: int) -> Tensor:
        if len(data) != self.encoded_bytes(numel):
            raise ValueError(f"{len(data)} bytes are not {numel} values in top_k")
        every, sizes = as_tensor(data), self._sizes(numel)
        packed_scales, packed_places, packed_codes = torch.split(every, sizes)
        scales = read_scales(packed_scales).view(-1, 2)
        places, codes = _unpack_places(packed_places), _unpack_codes(packed_codes)
        values, first, start = torch.zeros(numel), 0, 0
        for blocks in _cut(values):
            shape = len(blocks), min(self._kept, blocks.shape[1])
            last, stop = first + shape[0], start + shape[0] * shape[1]
            _scatter(
                blocks, scales[first:last], places[start:stop].view(shape), codes[start:stop].view(shape)
            )
            first, start = last, stop
        return values

    def encoded_bytes(self, numel: int) -> int:
        return sum(self._sizes(numel))

    def _sizes(self, numel: int) -> list[int]:
        """How many bytes scales, places and codes have."""
        whole, rest = divmod(numel, _SIZE)
        kept = whole * self._kept + min(rest, self._kept)
        blocks = whole + (rest > 0)
        return [2 * SCALE_BYTES * blocks, 3 * math.ceil(kept / 2), math.ceil(kept / 4)]


def _cut(values: Tensor) -> list[Tensor]:
    """``values`` (``[n]``) as whole blocks, ``[blocks, 4096]``, and as the rest, ``[1, m]``, if any."""
    whole = values.numel() // _SIZE * _SIZE
    return [part for part in (values[:whole].view(-1, _SIZE), values[whole:].view(1, -1)) if part.numel()]


def _choose(blocks: Tensor, kept: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scales ``[blocks, 2]``, the lower first, and places and codes ``[blocks, kept]`` of what is kept."""
    magnitudes = blocks.abs()
    found = magnitudes.topk(min(kept, blocks.shape[1]), dim=1, sorted=False).indices
    places = found.sort(dim=1).values
    magnitudes, negative = magnitudes.gather(1, places), blocks.gather(1, places) < 0
    upper = magnitudes > magnitudes.mean(1, keepdim=True)
    scales = torch.cat([_mean_where(group, magnitudes) for group in (~upper, upper)], 1)
    return round_scales(scales), places.int(), negative.to(torch.uint8) | upper.to(torch.uint8) << 1


def _mean_where(group: Tensor, magnitudes: Tensor) -> Tensor:
    """The mean of each row's ``magnitudes`` in ``group``, ``[blocks, 1]``; 0 where there are none."""
    return (magnitudes * group).sum(1, keepdim=True) / group.sum(1, keepdim=True).clamp(min=1)


def _scatter(blocks: Tensor, scales: Tensor, places: Tensor, codes: Tensor) -> None:
    """Write into ``blocks`` what `_choose` chose of them."""
    size = blocks.shape[1]
    if not (places.diff(dim=1) > 0).all() or not (places[:, -1] < size).all():
        raise ValueError(f"the places of top_k are not in order, or not within a block of {size} values")
    lower, upper = torch.split(scales, 1, dim=1)
    magnitudes = torch.where(codes > 1, upper, lower)
    blocks.scatter_(1, places, torch.where(codes & 1 == 1, -magnitudes, magnitudes))


def _pack_places(places: Tensor) -> Tensor:
    """Places from 0 to 4095 (int32, flat) as bytes, two in three."""
    first, second = pad(places, (0, len(places) % 2)).view(-1, 2).unbind(1)
    packed = [first & 255, first >> 8 | (second & 15) << 4, second >> 4]
    return torch.stack(packed, 1).to(torch.uint8)


def _unpack_places(data: Tensor) -> Tensor:
    """What `_pack_places` packed, as int64, and perhaps one more."""
    low, middle, high = data.long().view(-1, 3).unbind(1)
    return torch.stack([low | (middle & 15) << 8, middle >> 4 | high << 4], 1).flatten()


def _pack_codes(codes: Tensor) -> Tensor:
    """Codes from 0 to 3 (uint8, flat) as bytes, four in one."""
    first, second, third, fourth = pad(codes, (0, -len(codes) % 4)).view(-1, 4).unbind(1)
    return first | second << 2 | third << 4 | fourth << 6


def _unpack_codes(data: Tensor) -> Tensor:
    """What `_pack_codes` packed, and perhaps up to three more."""
    return torch.stack([data & 3, data >> 2 & 3, data >> 4 & 3, data >> 6], 1).flatten()
