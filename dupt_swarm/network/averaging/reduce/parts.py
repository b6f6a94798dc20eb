"""The parts of a vector in an all-reduce: whose share each is, what we give to it, and how it is averaged."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from dupt_swarm.manifest import Encoding
from dupt_swarm.network.averaging.gathering import loop_time
from dupt_swarm.replica.aggregation import screen_norms, weighted_mean
from dupt_swarm.replica.codec import (
    Codec,
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
    """A vector that is being averaged, in parts of equal size.

    Attributes:
        all: in order.
        encoded: the bytes of the average, once it is complete.
    """

    def __init__(self, contribution: bytes | memoryview, numel: int, encoding: Encoding) -> None:
        """Cut our ``contribution``, ``numel`` values as ``encoding`` has them.

        Raises:
            ValueError: it does not have so many values.
        """
        self.contribution_codec = build_codec(encoding.contribution, encoding)
        self.average_codec = build_codec(encoding.average, encoding)
        check_size(self.contribution_codec, contribution, numel)
        # Not a bytearray: it would be filled with zeros, on the event loop.
        self.encoded = torch.empty(encoded_size(self.average_codec, numel), dtype=torch.uint8).numpy().data
        cuts = (part_slices(codec, numel) for codec in (self.contribution_codec, self.average_codec))
        self.all = [
            Part(number, size, contribution[given], self.encoded[returned])
            for number, (size, given, returned) in enumerate(zip(part_sizes(numel), *cuts, strict=True))
        ]

    def shares(self, fractions: Sequence[float]) -> list[list[Part]]:
        """Whole parts for each reducer, in order, in proportion to ``fractions``."""
        ends = [round(sum_ / sum(fractions) * len(self.all)) for sum_ in accumulate(fractions)]
        return [self.all[begin:end] for begin, end in pairwise([0, *ends])]


def average_alone(contribution: bytes | memoryview, numel: int, encoding: Encoding, take: Take) -> memoryview:
    """What a group of one would make of the contribution, for a peer that has nobody to meet.

    Returns:
        The bytes of the average, which ``take`` got.

    Raises:
        ValueError: the contribution is not an encoding of ``numel`` values.
    """
    parts = Parts(contribution, numel, encoding)
    for part in parts.all:
        values = parts.contribution_codec.decode(part.data, part.numel)
        part.encoded[:] = parts.average_codec.encode(values)
        take(part.number, parts.average_codec.decode(part.encoded, part.numel))
    return parts.encoded


@dataclass(frozen=True)
class Averaged:
    """One averaged part: the bytes that every sender gets, and the tokens that went into it."""

    data: bytes
    weight: float


class PartReducer:
    """Averages the parts of one share, one after the other: nobody sends the next before it has an average.

    A part is done when all who are not left out have sent it. Everybody, this peer included, gets the same
    bytes of each average, which is why all replicas stay alike whatever the codec loses.

    Attributes:
        rejected_norms: how many contributions to a part were far larger than the others', and do not count.
    """

    def __init__(self, senders: Collection[str], codec: Codec, norm_ratio: float) -> None:
        self.rejected_norms = 0
        self._codec, self._norm_ratio = codec, norm_ratio
        self._usual_norm = 0.0  # the largest median of the parts so far
        self._active = set(senders)
        self._received: dict[str, tuple[Tensor, float]] = {}  # of the part that is being sent
        self._average: asyncio.Future[Averaged] = asyncio.get_running_loop().create_future()
        self._due_since: float | None = None  # when most had sent it
        self._waited = dict.fromkeys(senders, 0.0)  # seconds in which they waited for it in earlier parts
        self._job: asyncio.Task[None] | None = None

    async def average(self, sender: str, values: Tensor, weight: float) -> Averaged:
        """Submit a screened part, and wait for its average.

        Raises:
            ValueError: the sender was left out, or the run has ended.
        """
        if sender not in self._active:
            raise ValueError("this sender was left out")
        if self._due_since is not None:
            self._waited[sender] += loop_time() - self._due_since
        self._received[sender] = (values, weight)
        average = self._average
        self._average_if_complete()
        return await asyncio.shield(average)

    def late(self, seconds: float) -> list[str]:
        """Senders for whom most have waited for longer than so many seconds, over all parts.

        Of two, neither is most.
        """
        if self._due_since is None:
            return []
        waits, lacking = loop_time() - self._due_since, self._active - self._received.keys()
        return [sender for sender in sorted(lacking) if self._waited[sender] + waits > seconds]

    def leave_out(self, sender: str) -> None:
        """Wait no longer for this sender; what it has sent counts."""
        self._active.discard(sender)
        self._average_if_complete()

    def close(self) -> None:
        """Nobody waits any longer."""
        self._active, self._received = set(), {}
        self._fail(self._average, ValueError("the round has ended"))

    def _average_if_complete(self) -> None:
        received = self._received
        if received and self._active <= received.keys():
            in_order = [received[sender] for sender in sorted(received)]
            self._job = asyncio.create_task(self._run(self._average, in_order))
            self._average = asyncio.get_running_loop().create_future()
            self._received, self._due_since = {}, None
        elif 2 * len(self._active & received.keys()) <= len(self._active):
            self._due_since = None
        elif self._due_since is None:
            self._due_since = loop_time()

    async def _run(self, average: asyncio.Future[Averaged], received: Sequence[tuple[Tensor, float]]) -> None:
        try:
            averaged, left_out = await asyncio.to_thread(self._compute, received)
        except Exception as error:
            self._fail(average, error)  # whatever the error, waiting senders must be released
            return
        self.rejected_norms += left_out
        average.set_result(averaged)

    def _compute(self, received: Sequence[tuple[Tensor, float]]) -> tuple[Averaged, int]:
        values, weights = zip(*received, strict=True)
        keep, median = screen_norms(values, weights, self._norm_ratio, self._usual_norm)
        self._usual_norm = max(self._usual_norm, median)
        kept = [pair for pair, sound in zip(received, keep, strict=True) if sound]
        mean = weighted_mean([values for values, _ in kept], [weight for _, weight in kept])
        weight = math.fsum(weight for _, weight in kept)
        return Averaged(self._codec.encode(mean), weight), len(received) - len(kept)

    @staticmethod
    def _fail(average: asyncio.Future[Averaged], error: Exception) -> None:
        average.set_exception(error)
        average.exception()  # maybe nobody waits
