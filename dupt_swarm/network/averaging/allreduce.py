"""One all-reduce in one group: hivemind's butterfly, with screened parts, and one signed average for all."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
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
from dupt_swarm.network.p2p.bandwidth import Bandwidth, paced
from dupt_swarm.network.p2p.hivemind_internals import OpenRunner
from dupt_swarm.replica.aggregation import screen_part

# What follows the last average of a share; hivemind has no code of its own for it.
RECEIPT = averaging_pb2.ACCEPTED

logger = logging.getLogger(__name__)


@dataclass
class Tally:
    """What one all-reduce did, as this peer saw it.

    Attributes:
        weights: tokens × values of every averaged part received, for the mean of the tokens.
        values: how many averaged values were received.
        receipts: by reducer, of each share that arrived whole.
        lost_reducers: peers whose share did not, or not as they have signed.
        rejected: contributions left out here, by reason.
    """

    weights: list[float] = field(default_factory=list)
    values: int = 0
    receipts: dict[str, Receipt] = field(default_factory=dict)
    lost_reducers: list[str] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)


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
        bandwidth: Bandwidth,
        key: RSAPrivateKey,
        **kwargs: Any,
    ) -> None:
        """``offer`` has a vector of ``numel`` values; ``key`` signs; ``kwargs`` are `AllReduceRunner`'s."""
        super().__init__(tensors=[], weight=float(offer.tokens), **kwargs)
        self._bandwidth, self._give = bandwidth, offer.take
        self._subject = Subject(manifest.swarm_id, self.group_id.hex(), offer.round, offer.state)
        self._key, self._signing = key, asyncio.Lock()
        self._signed: Receipt | None = None
        self.tally = Tally()
        self._weight_limit = manifest.weight_limit(offer.round)
        parts = Parts(offer.contribution, numel, self.peer_fractions, manifest.encoding)
        self.tensor_part_container = self._parts = parts
        self.parts_for_local_averaging = parts.of(self.ordered_peer_ids.index(self.peer_id))
        self.tensor_part_reducer = PartReducer(
            len(self.parts_for_local_averaging),
            len(self.sender_peer_ids),
            parts.average_codec,
            manifest.limits.max_norm_ratio,
        )

    @property
    def complete(self) -> bool:
        """Whether every part of the average arrived; known once the run has ended."""
        return not self.tally.lost_reducers

    @property
    def tokens(self) -> int:
        """Tokens in the average: the mean over the values received, equal on all peers that got all."""
        return round(math.fsum(self.tally.weights) / max(self.tally.values, 1))

    @property
    def rejected(self) -> Counter[str]:
        """Contributions that this peer left out, by reason."""
        return self.tally.rejected + Counter(norm=self.tensor_part_reducer.rejected_norms)

    def log_rejected(self) -> None:
        """Log which contributions this peer left out."""
        if self.rejected:
            logger.warning("contributions left out of the average: %s", dict(self.rejected))

    async def exchange_with(self, peer_id: PeerID) -> None:
        """Send a peer its share of our contribution, and take the averages that it returns and signs for."""
        parts = self._parts.of(self.ordered_peer_ids.index(peer_id))
        try:
            await (self._average_own(parts) if peer_id == self.peer_id else self._exchange(peer_id, parts))
        except BaseException as error:
            # A peer may vanish once it has returned all of its share: the average is complete without it.
            if str(peer_id) not in self.tally.receipts:
                logger.warning("%s did not return its share: %s", peer_id, repr(error))
                self.tally.lost_reducers.append(str(peer_id))
                self._parts.register_processed_parts(len(parts))
            raise

    async def _average_own(self, parts: Sequence[Part]) -> None:
        sender = self.sender_peer_ids.index(self.peer_id)
        for number, part in enumerate(parts):
            values = await asyncio.to_thread(self._screen, number, part.data, self.weight)
            averaged = await self.tensor_part_reducer.average(sender, number, values, self.weight)
            await self._take(part, averaged.data, averaged.weight)
        self._complete(parts, await self._sign())

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
        outgoing = paced(self.parts_for(self.ordered_peer_ids.index(peer_id)), self._bandwidth.upload)
        sent = asyncio.Event()
        async with asyncio.timeout(self.reducer_timeout):  # a vanished machine never answers
            stream = await self.stub_of(peer_id).rpc_aggregate_part(then_set(outgoing, sent))
        if not self.should_delay_results(self.peer_id):
            sent.set()  # the reducer answers each part at once
        # Our own sending time does not count as the reducer's silence.
        replies = paced(timely(stream, self.reducer_timeout, sent), self._bandwidth.download)
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
            raise AllreduceException(f"a reducer returned an average with a bad {reason}")
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
            async with aclosing(paced(stream, self._bandwidth.download)) as messages:
                async for message in messages:
                    given, weight = message.tensor_part.buffer, message.weight
                    values = await asyncio.to_thread(self._screen, part, given, weight)
                    averaged: Averaged = await reducer.average(sender, part, values, weight)
                    part += 1
                    await self._bandwidth.upload.take(len(averaged.data), urgent=True)
                    yield averaging_pb2.AveragingData(
                        code=averaging_pb2.AVERAGED_PART,
                        tensor_part=runtime_pb2.Tensor(buffer=averaged.data, size=[values.numel()]),
                        weight=averaged.weight,
                    )
                    if part == reducer.num_parts:
                        receipt = runtime_pb2.Tensor(buffer=(await self._sign()).data)
                        yield averaging_pb2.AveragingData(code=RECEIPT, tensor_part=receipt)
        except Exception as error:
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
