"""One all-reduce in one group: hivemind's butterfly, with screened parts, and one signed average for all."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from hivemind.averaging.allreduce import AllreduceException
from hivemind.p2p import PeerID
from hivemind.proto import averaging_pb2, runtime_pb2
from hivemind.utils.crypto import RSAPrivateKey
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.average import Offer
from dupt_swarm.network.averaging.parts import Part, Parts
from dupt_swarm.network.averaging.pledge import Subject
from dupt_swarm.network.averaging.receipt import Receipt, ShareHash
from dupt_swarm.network.averaging.reducer import Averaged, PartReducer
from dupt_swarm.network.averaging.streams import expect, then_set, timely
from dupt_swarm.network.averaging.tally import Tally
from dupt_swarm.network.p2p.bandwidth import ROUND_RATIO, TokenBucket, paced
from dupt_swarm.network.p2p.hivemind_internals import OpenRunner
from dupt_swarm.replica.aggregation import norm_of, screen_part

# A part that takes so much longer than a sender may be silent waits for one who does not read what we return.
# The others would take us for silent after twice that.
STALL_RATIO = 1.25
# What follows the last average of a share; hivemind has no code of its own for it.
RECEIPT = averaging_pb2.ACCEPTED

logger = logging.getLogger(__name__)


class ScreeningRunner(OpenRunner):
    """`AllReduceRunner` that returns averages instead of differences, the same bytes to every peer.

    Upstream adds (average − own input) to the own input, which rounds differently on each peer, and
    encodes each difference anew. Here a reducer checks what it is sent (size, finite, weight, norm),
    averages, encodes the average once, and sends those bytes to every sender, itself included; then it signs
    for them, once for all.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        offer: Offer,
        numel: int,
        download: TokenBucket,
        key: RSAPrivateKey,
        **kwargs: Any,
    ) -> None:
        """``offer`` has a vector of ``numel`` values; ``key`` signs; ``kwargs`` are `AllReduceRunner`'s."""
        super().__init__(tensors=[], weight=float(offer.tokens), **kwargs)
        self._download, self._give = download, offer.take
        self._subject = Subject(manifest.swarm_id, self.group_id.hex(), offer.round, offer.state)
        self._key, self._signing = key, asyncio.Lock()
        self._signed: Receipt | None = None
        self._weight_limit = manifest.weight_limit(offer.round)
        self._norm_ratio = manifest.limits.max_norm_ratio
        self._patience = ROUND_RATIO * manifest.rounds.allreduce_seconds
        parts = Parts(offer.contribution, numel, self.peer_fractions, manifest.encoding)
        self.tensor_part_container = self._parts = parts
        shares = {str(peer_id): parts.of(index) for index, peer_id in enumerate(self.ordered_peer_ids)}
        numbers = {peer_id: [part.number for part in share] for peer_id, share in shares.items() if share}
        self.tally = Tally(str(self.peer_id), numbers)
        self.parts_for_local_averaging = parts.of(self.ordered_peer_ids.index(self.peer_id))
        self.tensor_part_reducer = PartReducer(
            len(self.parts_for_local_averaging),
            len(self.sender_peer_ids),
            parts.average_codec,
            self._norm_ratio,
        )

    @property
    def implausible(self) -> tuple[str, ...]:
        """Ids of the other reducers whose averages cannot be what they say, once all have arrived."""
        return self.tally.implausible(self.weight, self._weight_limit, self._norm_ratio)

    def conclude(self) -> Counter[str]:
        """The run has ended: note who never came or was not done, and log which contributions were left out.

        Returns:
            How many were, by reason.
        """
        never_came = self.banned_senders - self.active_senders
        self.tally.late_senders |= set(map(str, never_came))
        awaited = self.tensor_part_reducer.awaited(self.sender_timeout)
        self.tally.awaited_senders = {str(self.sender_peer_ids[sender]) for sender in awaited}
        rejected = self.tally.rejected + Counter(norm=self.tensor_part_reducer.rejected_norms)
        if rejected:
            logger.warning("contributions left out of the average: %s", dict(rejected))
        return rejected

    async def exchange_with(self, peer_id: PeerID) -> None:
        """Send a peer its share of our contribution, and take the averages that it returns and signs for.

        What cannot be one raises `ValueError`, whatever else fails another error.
        """
        parts = self._parts.of(self.ordered_peer_ids.index(peer_id))
        try:
            await (self._average_own(parts) if peer_id == self.peer_id else self._exchange(peer_id, parts))
        except BaseException as error:
            # A peer may vanish once it has returned all of its share: the average is complete without it.
            if str(peer_id) not in self.tally.receipts:
                logger.warning("%s did not return its share: %s", peer_id, repr(error))
                self.tally.lost_reducers.add(str(peer_id))
                if isinstance(error, ValueError) and peer_id != self.peer_id:
                    self.tally.bad_reducers.add(str(peer_id))
                self._parts.register_processed_parts(len(parts))
            raise

    async def _average_own(self, parts: Sequence[Part]) -> None:
        sender, leaving = self.sender_peer_ids.index(self.peer_id), asyncio.create_task(self._leave_late())
        try:
            for number, part in enumerate(parts):
                values = await asyncio.to_thread(self._screen, number, part.data, self.weight)
                averaged = await self.tensor_part_reducer.average(sender, number, values, self.weight)
                await self._take(part, averaged.data, averaged.weight)
        finally:
            leaving.cancel()
        self._complete(parts, await self._sign())

    async def _leave_late(self) -> None:
        """Go on without those who send each part just in time, or do not read what we return.

        Until cancelled.
        """
        while True:
            await asyncio.sleep(self.sender_timeout / 8)
            for sender in self.tensor_part_reducer.late(self._patience, STALL_RATIO * self.sender_timeout):
                sender_id = self.sender_peer_ids[sender]
                if sender_id == self.peer_id:
                    continue
                logger.warning("%s was left out: the others have waited for too long", sender_id)
                self.tally.late_senders.add(str(sender_id))
                await self.ban(sender_id)

    async def _exchange(self, peer_id: PeerID, parts: Sequence[Part]) -> None:
        """Send ``peer_id`` its share of our contribution, and take the averages of that share, in order.

        It hangs up after the receipt: see `GuardedP2P`.
        """
        returned = ShareHash()
        async with aclosing(self._replies(peer_id)) as replies:
            for part in parts:
                message = await expect(replies, averaging_pb2.AVERAGED_PART)
                data, weight = message.tensor_part.buffer, message.weight
                await asyncio.to_thread(returned.add, data, weight)
                await self._take(part, data, weight)
            message = await expect(replies, RECEIPT)
            receipt = await asyncio.to_thread(Receipt.read, message.tensor_part.buffer)
            receipt.check(self._subject, returned.digest, str(peer_id))
            self._complete(parts, receipt)

    async def _replies(self, peer_id: PeerID) -> AsyncGenerator[Any, None]:
        """Send ``peer_id`` its share of our contribution; yields what it answers."""
        outgoing = self.parts_for(self.ordered_peer_ids.index(peer_id))
        sent = asyncio.Event()
        async with asyncio.timeout(self.reducer_timeout):  # a vanished machine never answers
            stream = await self.stub_of(peer_id).rpc_aggregate_part(then_set(outgoing, sent))
        if not self.should_delay_results(self.peer_id):
            sent.set()  # the reducer answers each part at once
        # Our own sending time does not count as the reducer's silence.
        replies = paced(timely(stream, self.reducer_timeout, sent), self._download)
        async with aclosing(replies):
            async for message in replies:
                yield message

    async def parts_for(self, peer_index: int) -> AsyncGenerator[Any, None]:
        """The messages with our contribution to a peer's share."""
        for number, part in enumerate(self._parts.of(peer_index)):
            message = averaging_pb2.AveragingData(
                tensor_part=runtime_pb2.Tensor(buffer=bytes(part.data), size=[part.numel]), weight=self.weight
            )
            if number == 0:
                message.code, message.group_id = averaging_pb2.PART_FOR_AVERAGING, self.group_id
            yield message

    async def _take(self, part: Part, data: bytes, weight: float) -> None:
        await asyncio.to_thread(self._check_and_give, part, data, weight)
        self.tally.weights.append(weight * part.numel)
        self.tally.values += part.numel

    def _check_and_give(self, part: Part, data: bytes, weight: float) -> None:
        values = self._parts.average_codec.decode(data, part.numel)
        limit = self._weight_limit * len(self.sender_peer_ids)
        reason = screen_part(values, weight, limit)
        if reason:
            raise ValueError(f"a reducer returned an average with a bad {reason}")
        own = norm_of(self._parts.contribution_codec.decode(part.data, part.numel))
        self.tally.squares[part.number] = own**2, norm_of(values) ** 2
        part.encoded[:] = data
        self._give(part.number, values)

    def _complete(self, parts: Sequence[Part], receipt: Receipt) -> None:
        """A share is there, as its reducer has signed."""
        self.tally.receipts[receipt.maker] = receipt
        self._parts.register_processed_parts(len(parts))

    async def _sign(self) -> Receipt:
        """Our own receipt, once all of our parts are averaged: the same for all, whoever asks first."""
        async with self._signing:
            if self._signed is None:
                share, me = self.tensor_part_reducer.returned.digest, str(self.peer_id)
                self._signed = await asyncio.to_thread(Receipt.sign, self._subject, share, me, self._key)
            return self._signed

    async def reduce_from(self, stream: AsyncGenerator[Any, None], sender: int) -> AsyncGenerator[Any, None]:
        """Average the parts that one peer sends, and send it the results, and our receipt.

        A sender that fails is told so, and gets no more results; upstream may have forgotten the task that
        would raise.
        """
        reducer, part, sender_id = self.tensor_part_reducer, 0, self.sender_peer_ids[sender]
        try:
            async with aclosing(paced(stream, self._download)) as messages:
                async for message in messages:
                    given, weight = message.tensor_part.buffer, message.weight
                    values = await asyncio.to_thread(self._screen, part, given, weight)
                    averaged: Averaged = await reducer.average(sender, part, values, weight)
                    part += 1
                    yield averaging_pb2.AveragingData(
                        code=averaging_pb2.AVERAGED_PART,
                        tensor_part=runtime_pb2.Tensor(buffer=averaged.data, size=[values.numel()]),
                        weight=averaged.weight,
                    )
                    if part == reducer.num_parts:
                        receipt = runtime_pb2.Tensor(buffer=(await self._sign()).data)
                        yield averaging_pb2.AveragingData(code=RECEIPT, tensor_part=receipt)
        except Exception as error:
            if isinstance(error, TimeoutError):
                self.tally.late_senders.add(str(sender_id))
            logger.warning("%s was left out: %s", sender_id, repr(error))
            yield averaging_pb2.AveragingData(code=averaging_pb2.INTERNAL_ERROR)
        finally:
            if part != reducer.num_parts:
                logger.warning("%s left after %d parts", sender_id, part)
                await self.ban(sender_id)

    def _screen(self, part: int, data: bytes | memoryview, weight: float) -> Tensor:
        """The values that somebody contributes to one of our parts."""
        if part >= len(self.parts_for_local_averaging):
            raise self._reject("too_many")
        try:
            numel = self.parts_for_local_averaging[part].numel
            values = self._parts.contribution_codec.decode(data, numel)
        except ValueError as error:
            raise self._reject("shape") from error
        reason = screen_part(values, weight, self._weight_limit)
        if reason:
            raise self._reject(reason)
        return values

    def _reject(self, reason: str) -> AllreduceException:
        self.tally.rejected[reason] += 1
        return AllreduceException(f"a contribution was left out: {reason}")
