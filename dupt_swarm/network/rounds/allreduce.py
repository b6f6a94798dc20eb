"""A butterfly all-reduce: the parts of a vector, whose share each is, and how they are averaged.

Each member sends every reducer its share of the own contribution, part by part, and gets averages back.
hivemind's own `AllReduceRunner` returns differences: each peer adds them to its own input, where they round
differently, and they are encoded anew for each. Here a reducer encodes the average once, and everybody gets
those bytes, itself included.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from hivemind.proto import averaging_pb2, runtime_pb2
from torch import Tensor

from dupt_swarm.manifest import Encoding, Manifest
from dupt_swarm.network.p2p.bandwidth import ROUND_RATIO, TokenBucket, paced
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.replica.aggregation import screen_norms, screen_part, weighted_mean
from dupt_swarm.replica.codec import (
    Codec,
    build_codec,
    check_size,
    encoded_size,
    part_sizes,
    part_slices,
)
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.draw import drawn

logger = logging.getLogger(__name__)


def loop_time() -> float:
    """Seconds on the event loop's clock, which a test may let pass without waiting."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True)
class Part:
    """One part of the vector.

    Attributes:
        numel: how many values it has.
        data: our contribution to it, encoded.
        encoded: where the bytes of its average go.
    """

    numel: int
    data: bytes | memoryview
    encoded: memoryview


class Parts:
    """A vector that is being averaged, in parts of equal size.

    Attributes:
        numel: its values.
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
        self.numel = numel
        # Not a bytearray: it would be filled with zeros, on the event loop.
        self.encoded = torch.empty(encoded_size(self.average_codec, numel), dtype=torch.uint8).numpy().data
        cuts = (part_slices(codec, numel) for codec in (self.contribution_codec, self.average_codec))
        self.all = [
            Part(size, contribution[given], self.encoded[returned])
            for size, given, returned in zip(part_sizes(numel), *cuts, strict=True)
        ]

    def shares(self, fractions: Sequence[float]) -> list[list[Part]]:
        """Whole parts for each reducer, in order, in proportion to ``fractions``."""
        ends = [round(sum_ / sum(fractions) * len(self.all)) for sum_ in accumulate(fractions)]
        return [self.all[begin:end] for begin, end in pairwise([0, *ends])]


@dataclass(frozen=True)
class AveragedPart:
    """The bytes that every sender gets, and the tokens that went into them."""

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
        self._average: asyncio.Future[AveragedPart] = asyncio.get_running_loop().create_future()
        self._due_since: float | None = None  # when most had sent it
        self._waited = dict.fromkeys(senders, 0.0)  # seconds in which they waited for it in earlier parts
        self._job: asyncio.Task[None] | None = None

    async def average(self, sender: str, values: Tensor, weight: float) -> AveragedPart:
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
        """Senders that most have waited for longer than so many seconds, over all parts.

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
        """Have nobody wait any longer."""
        self._active, self._received = set(), {}
        self._fail(self._average, ValueError("the round has ended"))

    def _average_if_complete(self) -> None:
        """Begin to average the part if all have sent it; else note since when most wait for the others."""
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

    async def _run(
        self, average: asyncio.Future[AveragedPart], received: Sequence[tuple[Tensor, float]]
    ) -> None:
        try:
            averaged, left_out = await asyncio.to_thread(self._compute, received)
        except Exception as error:
            self._fail(average, error)  # whatever the error, waiting senders must be released
            return
        self.rejected_norms += left_out
        average.set_result(averaged)

    def _compute(self, received: Sequence[tuple[Tensor, float]]) -> tuple[AveragedPart, int]:
        values, weights = zip(*received, strict=True)
        keep, median = screen_norms(values, weights, self._norm_ratio, self._usual_norm)
        self._usual_norm = max(self._usual_norm, median)
        kept = [pair for pair, sound in zip(received, keep, strict=True) if sound]
        mean = weighted_mean([values for values, _ in kept], [weight for _, weight in kept])
        weight = math.fsum(weight for _, weight in kept)
        return AveragedPart(self._codec.encode(mean), weight), len(received) - len(kept)

    @staticmethod
    def _fail(average: asyncio.Future[AveragedPart], error: Exception) -> None:
        average.set_exception(error)
        average.exception()  # maybe nobody waits


Messages = AsyncGenerator[Any, None]
"""Of hivemind's type `AveragingData`."""
Ask = Callable[[str, Messages], Awaitable[Messages]]


class AllReduce:
    """One run of it, as one member sees it.

    Attributes:
        group_id: names those who run it, for hivemind.
        missing: ids of the reducers whose shares have not arrived.
    """

    def __init__(
        self, manifest: Manifest, roll: Roll, claim: Claim, parts: Parts, ask: Ask, download: TokenBucket
    ) -> None:
        """Begin.

        Args:
            manifest: of the swarm.
            roll: who runs it; those of them reduce a share who can be called.
            claim: what our contribution is.
            parts: of it.
            ask: sends a member our parts, and gives what it answers.
            download: what comes waits for it.
        """
        rounds = manifest.rounds
        self.group_id = bytes.fromhex(roll.id)
        # In an order that is another one each time: of a small vector not everybody gets a share.
        members = drawn((each.maker for each in roll.brought), roll.id)
        self._me, self._members, self._ask = claim.maker, frozenset(members), ask
        self._download, self._parts = download, parts
        self._weight, self._weight_limit = float(claim.tokens), manifest.weight_limit(claim.round)
        self._sender_seconds, self._reducer_seconds = rounds.chunk_seconds, 2 * rounds.chunk_seconds
        self._patience = ROUND_RATIO * rounds.allreduce_seconds
        callable = {each.maker for each in roll.promises if each.callable}
        shares = parts.shares([float(each in callable) for each in members])
        self._shares = {each: share for each, share in zip(members, shares, strict=True) if share}
        self._own = self._shares.get(self._me, [])
        self._reducer = PartReducer(self._members, parts.average_codec, manifest.limits.max_norm_ratio)
        self.missing, self._came = set(self._shares), {self._me}
        self._rejected: Counter[str] = Counter()
        self._weights: list[float] = []  # tokens × values of every averaged part

    @property
    def encoded(self) -> memoryview:
        """The bytes of the average, if no share is missing."""
        return self._parts.encoded

    @property
    def tokens(self) -> int:
        """Tokens in the average: the mean over its values, equal on all peers."""
        return round(math.fsum(self._weights) / self._parts.numel)

    @property
    def rejected(self) -> Counter[str]:
        """How many contributions to our share were left out, by reason."""
        return self._rejected + Counter(norm=self._reducer.rejected_norms)

    async def run(self) -> None:
        """Take part, until each share has arrived or failed. It may be cancelled."""
        try:
            await asyncio.gather(*map(self._exchange_with, self._shares))
        finally:
            self._reducer.close()

    async def _exchange_with(self, reducer: str) -> None:
        """Give a reducer its share of our contribution, and take the averages that it returns."""
        try:
            await (self._average_own() if reducer == self._me else self._send_to(reducer))
        except Exception as error:
            # It may fail in any way that libp2p knows; but once its share is here it may vanish.
            if reducer in self.missing:
                logger.warning("%s did not return its share: %r", reducer, error)

    async def _average_own(self) -> None:
        leaving = asyncio.create_task(self._leave_out_late())
        try:
            for number, part in enumerate(self._own):
                values = await asyncio.to_thread(self._screen, number, part.data, self._weight)
                await self._take(part, await self._reducer.average(self._me, values, self._weight))
        finally:
            leaving.cancel()
        self.missing.discard(self._me)

    async def _leave_out_late(self) -> None:
        """Go on without members that never came, or that most have waited for half of the round's time.

        Else one slow member would have each round time out, for all. Until cancelled.
        """
        await asyncio.sleep(self._sender_seconds)
        late = sorted(self._members - self._came)
        while True:
            for sender in late:
                logger.warning("%s was left out: the others have waited for too long", sender)
                self._reducer.leave_out(sender)
            await asyncio.sleep(self._sender_seconds / 8)
            late = [each for each in self._reducer.late(self._patience) if each != self._me]

    async def _send_to(self, reducer: str) -> None:
        """Send a reducer its share of our contribution, and take its averages."""
        share = self._shares[reducer]
        async with asyncio.timeout(self._reducer_seconds):  # a vanished machine never answers
            replies = await self._ask(reducer, self.messages_of(share))
        timely = paced(_timely(replies, self._reducer_seconds), self._download)
        async with aclosing(timely):  # we hang up first: see `GuardedP2P`
            for part in share:
                message = await anext(timely, None)
                if message is None or message.code != averaging_pb2.AVERAGED_PART:
                    raise ValueError("it ended without an average")
                await self._take(part, AveragedPart(message.tensor_part.buffer, message.weight))
            self.missing.discard(reducer)

    async def messages_of(self, share: Sequence[Part]) -> Messages:
        """The messages with our contribution to a share."""
        for number, part in enumerate(share):
            message = averaging_pb2.AveragingData(
                tensor_part=runtime_pb2.Tensor(buffer=bytes(part.data), size=[part.numel]),
                weight=self._weight,
            )
            if number == 0:
                message.code, message.group_id = averaging_pb2.PART_FOR_AVERAGING, self.group_id
            yield message

    async def _take(self, part: Part, averaged: AveragedPart) -> None:
        await asyncio.to_thread(self._check_and_keep, part, averaged)
        self._weights.append(averaged.weight * part.numel)

    def _check_and_keep(self, part: Part, averaged: AveragedPart) -> None:
        values = self._parts.average_codec.decode(averaged.data, part.numel)
        reason = screen_part(values, averaged.weight, self._weight_limit * len(self._members))
        if reason:
            raise ValueError(f"a reducer returned an average with a bad {reason}")
        part.encoded[:] = averaged.data

    async def reduce_from(self, sender: str, messages: Messages) -> Messages:
        """Average the parts that a member sends; yields the averages. One that fails gets no more of them."""
        if sender not in self._members - self._came:
            yield averaging_pb2.AveragingData(code=averaging_pb2.PROTOCOL_VIOLATION)
            return
        self._came.add(sender)
        number = 0
        try:
            timely = paced(_timely(messages, self._sender_seconds), self._download)
            async with aclosing(timely):
                async for message in timely:
                    data, weight = message.tensor_part.buffer, message.weight
                    values = await asyncio.to_thread(self._screen, number, data, weight)
                    averaged = await self._reducer.average(sender, values, weight)
                    number += 1
                    yield averaging_pb2.AveragingData(
                        code=averaging_pb2.AVERAGED_PART,
                        tensor_part=runtime_pb2.Tensor(buffer=averaged.data, size=[values.numel()]),
                        weight=averaged.weight,
                    )
        except Exception as error:
            logger.warning("%s was left out: %r", sender, error)
            yield averaging_pb2.AveragingData(code=averaging_pb2.INTERNAL_ERROR)
        finally:
            if number < len(self._own):
                logger.warning("%s left after %d parts", sender, number)
                self._reducer.leave_out(sender)

    def _screen(self, number: int, data: bytes | memoryview, weight: float) -> Tensor:
        """The values that somebody contributes to one of our parts."""
        if number >= len(self._own):
            raise self._reject("too_many")
        try:
            values = self._parts.contribution_codec.decode(data, self._own[number].numel)
        except ValueError as error:
            raise self._reject("shape") from error
        reason = screen_part(values, weight, self._weight_limit)
        if reason:
            raise self._reject(reason)
        return values

    def _reject(self, reason: str) -> ValueError:
        self._rejected[reason] += 1
        return ValueError(f"a contribution was left out: {reason}")


async def _timely(messages: Messages, seconds: float) -> Messages:
    """The ``messages``, each within so many seconds."""
    async with aclosing(messages):
        while True:
            async with asyncio.timeout(seconds):
                message = await anext(messages, None)
            if message is None:
                return
            yield message
