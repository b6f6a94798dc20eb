"""One all-reduce in one group: a butterfly, with screened parts, and one average for all.

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
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from hivemind.proto import averaging_pb2, runtime_pb2
from torch import Tensor

from dupt_swarm.network.averaging.exchange import Offer, RoundContext
from dupt_swarm.network.averaging.reduce.parts import Averaged, Part, PartReducer, Parts
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.p2p.bandwidth import ROUND_RATIO, paced
from dupt_swarm.replica.aggregation import screen_part

Messages = AsyncGenerator[Any, None]
"""Of hivemind's type `AveragingData`."""
Ask = Callable[[str, Messages], Awaitable[Messages]]

logger = logging.getLogger(__name__)


class AllReduce:
    """One run of it, as one member sees it.

    Attributes:
        group_id: of the group.
        missing: ids of the reducers whose shares have not arrived.
        lost: ids of the others that were late with contributions or averages, once the run has ended.
    """

    def __init__(self, context: RoundContext, roll: Roll, offer: Offer, ask: Ask) -> None:
        """``ask`` sends a member our parts, and gives what it answers."""
        manifest, rounds = context.manifest, context.manifest.rounds
        self.group_id = bytes.fromhex(roll.id)
        self._me, self._members, self._ask = context.me, frozenset(roll.members), ask
        self._download, self._numel, self._give = context.p2p.bandwidth.download, context.numel, offer.take
        self._weight, self._weight_limit = float(offer.tokens), manifest.weight_limit(offer.round)
        self._sender_seconds, self._reducer_seconds = rounds.chunk_seconds, 2 * rounds.chunk_seconds
        self._patience = ROUND_RATIO * rounds.allreduce_seconds
        self._parts = Parts(offer.contribution, context.numel, manifest.encoding)
        # Of a small vector not everybody gets a share.
        shares = self._parts.shares([float(each.callable) for each in roll.drawn])
        self._shares = {each.maker: share for each, share in zip(roll.drawn, shares, strict=True) if share}
        self._own = self._shares.get(self._me, [])
        self._reducer = PartReducer(self._members, self._parts.average_codec, manifest.limits.max_norm_ratio)
        self.missing, self.lost = set(self._shares), tuple[str, ...]()
        self._came, self._late = {self._me}, set[str]()
        self._rejected: Counter[str] = Counter()
        self._weights: list[float] = []  # tokens × values of every averaged part

    @property
    def encoded(self) -> memoryview:
        """The bytes of the average, if no share is missing."""
        return self._parts.encoded

    @property
    def tokens(self) -> int:
        """Tokens in the average: the mean over its values, equal on all peers."""
        return round(math.fsum(self._weights) / self._numel)

    @property
    def rejected(self) -> Counter[str]:
        """How many contributions to our share were left out, by reason."""
        return self._rejected + Counter(norm=self._reducer.rejected_norms)

    async def run(self) -> None:
        """Take part, until each share has arrived or failed. It may be cancelled."""
        try:
            await asyncio.gather(*map(self._exchange_with, self._shares))
        finally:
            # When most of the group's shares are missing, our own link is at fault.
            missing = self.missing if 2 * len(self.missing) <= len(self._members) else set[str]()
            self.lost = tuple(sorted((self._late | missing) - {self._me}))
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
        """Go on without who never came, or for whom most have waited half of the round's time.

        Else one slow member would have each round time out, for all. Until cancelled.
        """
        await asyncio.sleep(self._sender_seconds)
        late = sorted(self._members - self._came)
        while True:
            for sender in late:
                logger.warning("%s was left out: the others have waited for too long", sender)
                self._late.add(sender)
                self._reducer.leave_out(sender)
            await asyncio.sleep(self._sender_seconds / 8)
            late = [each for each in self._reducer.late(self._patience) if each != self._me]

    async def _send_to(self, reducer: str) -> None:
        share = self._shares[reducer]
        async with asyncio.timeout(self._reducer_seconds):  # a vanished machine never answers
            replies = await self._ask(reducer, self.messages_of(share))
        timely = paced(_timely(replies, self._reducer_seconds), self._download)
        async with aclosing(timely):  # we hang up first: see `GuardedP2P`
            for part in share:
                message = await anext(timely, None)
                if message is None or message.code != averaging_pb2.AVERAGED_PART:
                    raise ValueError("it ended without an average")
                await self._take(part, Averaged(message.tensor_part.buffer, message.weight))
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

    async def _take(self, part: Part, averaged: Averaged) -> None:
        await asyncio.to_thread(self._check_and_give, part, averaged)
        self._weights.append(averaged.weight * part.numel)

    def _check_and_give(self, part: Part, averaged: Averaged) -> None:
        values = self._parts.average_codec.decode(averaged.data, part.numel)
        reason = screen_part(values, averaged.weight, self._weight_limit * len(self._members))
        if reason:
            raise ValueError(f"a reducer returned an average with a bad {reason}")
        part.encoded[:] = averaged.data
        self._give(part.number, values)

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
            if isinstance(error, TimeoutError):
                self._late.add(sender)
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
