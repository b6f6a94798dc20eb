"""The parts of a vector in an all-reduce: whose share each is, what we give to it, and its average."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from hivemind.averaging.partition import AllreduceException

from dupt_swarm.manifest import Encoding
from dupt_swarm.replica.codec import (
    build_codec,
    check_size,
    encoded_size,
    part_sizes,
    part_slices,
)
from dupt_swarm.replica.next_state import Take


@dataclass(frozen=True)
class Part:
    """One part of the vector.

    Attributes:
        number: its place in the vector.
        numel: how many values it has.
        data: our contribution to it, encoded.
        encoded: where the bytes of its average go.
    """

    number: int
    numel: int
    data: bytes | memoryview
    encoded: memoryview


class Parts:
    """A vector that is being averaged: whole parts are given to reducers, in order, by their fractions.

    (It stands in for hivemind's `TensorPartContainer`, which cuts between values. The names that
    `AllReduceRunner` calls are hivemind's.)

    Attributes:
        num_parts_by_peer: how many parts each peer of the group reduces.
        encoded: the bytes of the average, once it is complete.
    """

    def __init__(
        self, contribution: bytes | memoryview, numel: int, fractions: Sequence[float], encoding: Encoding
    ) -> None:
        """Cut a vector.

        Args:
            contribution: ours, encoded.
            numel: values of the vector.
            fractions: how much of it each peer of the group reduces, in proportion.
            encoding: how contributions and averages are encoded.

        Raises:
            ValueError: ``contribution`` does not have ``numel`` values.
        """
        self.contribution_codec = build_codec(encoding.contribution, encoding)
        self.average_codec = build_codec(encoding.average, encoding)
        check_size(self.contribution_codec, contribution, numel)
        # Not a bytearray: it would be filled with zeros, on the event loop.
        self.encoded = torch.empty(encoded_size(self.average_codec, numel), dtype=torch.uint8).numpy().data
        self._parts = [
            Part(number, size, contribution[given], self.encoded[returned])
            for number, (size, given, returned) in enumerate(
                zip(
                    part_sizes(numel),
                    part_slices(self.contribution_codec, numel),
                    part_slices(self.average_codec, numel),
                    strict=True,
                )
            )
        ]
        ends = [round(sum_ / sum(fractions) * len(self._parts)) for sum_ in accumulate(fractions)]
        self._shares = [slice(*pair) for pair in pairwise([0, *ends])]
        self.num_parts_by_peer = tuple(share.stop - share.start for share in self._shares)
        self._missing = len(self._parts)
        self._ended = asyncio.Event()

    def of(self, peer_index: int) -> list[Part]:
        """The parts that this peer of the group reduces."""
        return self._parts[self._shares[peer_index]]

    def register_processed_parts(self, count: int) -> None:
        """Wait no longer for ``count`` parts: they are there, or will never be."""
        self._missing -= count
        if not self._missing:
            self._ended.set()

    async def iterate_output_tensors(self) -> AsyncIterator[memoryview]:
        """Waits for all parts, and yields the bytes of the average."""
        await self._ended.wait()
        if self._missing:
            raise AllreduceException("the all-reduce was ended before its average was complete")
        yield self.encoded

    def finalize(self) -> None:
        """Whoever waits for the average waits no longer."""
        self._ended.set()


def average_alone(contribution: bytes | memoryview, numel: int, encoding: Encoding, take: Take) -> memoryview:
    """What a group of one would make of the contribution, for a peer that has nobody to meet.

    Returns:
        The bytes of the average, which ``take`` got.

    Raises:
        ValueError: the contribution is not an encoding of ``numel`` values.
    """
    parts = Parts(contribution, numel, (1.0,), encoding)
    for part in parts.of(0):
        values = parts.contribution_codec.decode(part.data, part.numel)
        part.encoded[:] = parts.average_codec.encode(values)
        take(part.number, parts.average_codec.decode(part.encoded, part.numel))
    return parts.encoded
