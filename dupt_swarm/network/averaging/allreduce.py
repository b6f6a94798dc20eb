"""One all-reduce in one group: hivemind's butterfly, with screened parts and one average for all."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from hivemind.averaging.allreduce import AllreduceException
from hivemind.averaging.partition import TensorPartContainer
from hivemind.compression import CompressionBase, CompressionInfo
from hivemind.p2p import PeerID
from hivemind.proto import averaging_pb2, runtime_pb2
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.reducer import Averaged, PartReducer
from dupt_swarm.network.p2p.bandwidth import Bandwidth, paced
from dupt_swarm.network.p2p.hivemind_internals import OpenRunner
from dupt_swarm.replica.aggregation import screen_part
from dupt_swarm.replica.codec import Codec, build_codec

logger = logging.getLogger(__name__)


@dataclass
class Tally:
    """What one all-reduce did, as this peer saw it.

    Attributes:
        weights: tokens × values of every averaged part received, for the mean of the tokens.
        values: how many averaged values were received.
        lost_reducers: peers whose share of the average did not arrive.
        rejected: contributions left out here, by reason.
    """

    weights: list[float] = field(default_factory=list)
    values: int = 0
    lost_reducers: list[str] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)


class WireCompression(CompressionBase):  # type: ignore[misc]
    """Lets hivemind's part container split and encode with our codec."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def compress(self, tensor: Tensor, info: CompressionInfo, allow_inplace: bool = False) -> Any:
        """One part as a message."""
        del info, allow_inplace
        return runtime_pb2.Tensor(buffer=self._codec.encode(tensor), size=[tensor.numel()])

    def extract(self, serialized_tensor: Any) -> Tensor:
        """The values of a message."""
        return self._codec.decode(serialized_tensor.buffer, math.prod(serialized_tensor.size))

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        """Bytes sent ÷ bytes in memory."""
        del info
        return self._codec.bytes_per_value / 4


class ScreeningRunner(OpenRunner):
    """`AllReduceRunner` that returns averages instead of differences, the same bytes to every peer.

    Upstream adds (average − own input) to the own input, which rounds differently on each peer, and
    encodes each difference anew. Here a reducer checks what it is sent (size, finite, weight, norm),
    averages, encodes the average once, and sends those bytes to every sender, itself included.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        contribution: Tensor,
        weight_limit: float,
        bandwidth: Bandwidth,
        **kwargs: Any,
    ) -> None:
        """``contribution`` is the flat fp32 vector; ``kwargs`` are those of `AllReduceRunner`."""
        super().__init__(tensors=[contribution], **kwargs)
        self._bandwidth = bandwidth
        self.tally = Tally()
        self._codec = build_codec(manifest)
        self._weight_limit = weight_limit
        self.tensor_part_container = TensorPartContainer(
            [contribution], self.peer_fractions, WireCompression(self._codec), return_deltas=False
        )
        own = self.ordered_peer_ids.index(self.peer_id)
        self.parts_for_local_averaging = self.tensor_part_container.get_raw_input_parts(own)
        self.tensor_part_reducer = PartReducer(
            len(self.parts_for_local_averaging),
            len(self.sender_peer_ids),
            self._codec,
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
        """Send a peer its share of our contribution, and register the averages that it returns."""
        peer_index = self.ordered_peer_ids.index(peer_id)
        received = 0
        try:
            ours = peer_id == self.peer_id
            async with aclosing(self._average_own() if ours else self._exchange(peer_id)) as averages:
                async for values, weight in averages:
                    self.tally.weights.append(weight * values.numel())
                    self.tally.values += values.numel()
                    self.tensor_part_container.register_processed_part(peer_index, received, values)
                    received += 1
            if received != self.tensor_part_container.num_parts_by_peer[peer_index]:
                raise AllreduceException(f"{peer_id} returned only {received} parts")
        except BaseException as error:
            # A peer may vanish once it has returned all of its share: the average is complete without it.
            if received < self.tensor_part_container.num_parts_by_peer[peer_index]:
                logger.warning("%s did not return its share: %s", peer_id, repr(error))
                self.tally.lost_reducers.append(str(peer_id))
                self.tensor_part_container.register_failed_reducer(peer_index)
            raise

    async def _average_own(self) -> AsyncGenerator[tuple[Tensor, float], None]:
        sender = self.sender_peer_ids.index(self.peer_id)
        for number, part in enumerate(self.parts_for_local_averaging):
            averaged = await self.tensor_part_reducer.average(sender, number, part, self.weight)
            yield self._decode_average(averaged.data, averaged.weight, part.numel())

    async def _exchange(self, peer_id: PeerID) -> AsyncGenerator[tuple[Tensor, float], None]:
        """Send ``peer_id`` its share of our contribution; yields the averages of that share, in order.

        It hangs up after the last one: see `GuardedP2P`.
        """
        peer_index = self.ordered_peer_ids.index(peer_id)
        sizes = deque(part.numel() for part in self.parts_of(peer_index))
        sent = asyncio.Event()
        outgoing = paced(self.parts_for(peer_index), self._bandwidth.upload)
        async with asyncio.timeout(self.reducer_timeout):  # a vanished machine never answers
            stream = await self.stub_of(peer_id).rpc_aggregate_part(_then_set(outgoing, sent))
        if not self.should_delay_results(self.peer_id):
            sent.set()  # the reducer answers each part at once
        # Our own sending time does not count as the reducer's silence.
        replies = paced(_timely(stream, self.reducer_timeout, sent), self._bandwidth.download)
        async with aclosing(replies):
            async for message in replies:
                if message.code != averaging_pb2.AVERAGED_PART:
                    raise AllreduceException(f"{peer_id} sent no average, but code {message.code}")
                data, numel = message.tensor_part.buffer, sizes.popleft()
                yield await asyncio.to_thread(self._decode_average, data, message.weight, numel)
                if not sizes:
                    return

    async def parts_for(self, peer_index: int) -> AsyncGenerator[Any, None]:
        """The messages with our contribution to a peer's share; the next one is encoded meanwhile.

        (Upstream's do so in a task that is left behind when nobody reads to the end.)
        """
        loop, encode = asyncio.get_running_loop(), self._codec.encode
        parts = self.parts_of(peer_index)
        encoded = [loop.run_in_executor(None, encode, part) for part in parts[:1]]
        for number, part in enumerate(parts):
            data = await encoded.pop()
            encoded = [loop.run_in_executor(None, encode, after) for after in parts[number + 1 : number + 2]]
            message = averaging_pb2.AveragingData(
                tensor_part=runtime_pb2.Tensor(buffer=data, size=[part.numel()]), weight=self.weight
            )
            if number == 0:
                message.code, message.group_id = averaging_pb2.PART_FOR_AVERAGING, self.group_id
            yield message

    def _decode_average(self, data: bytes, weight: float, numel: int) -> tuple[Tensor, float]:
        values = self._codec.decode(data, numel)
        limit = self._weight_limit * len(self.sender_peer_ids)
        reason = screen_part(values, weight, limit)
        if reason:
            raise AllreduceException(f"a reducer returned an average with a bad {reason}")
        return values, weight

    async def reduce_from(self, stream: AsyncGenerator[Any, None], sender: int) -> AsyncGenerator[Any, None]:
        """Average the parts that one peer sends, and send it the results.

        A sender that fails is told so, and gets no more results; upstream may have forgotten the task that
        would raise.
        """
        reducer, part, sender_id = self.tensor_part_reducer, 0, self.sender_peer_ids[sender]
        try:
            async with aclosing(paced(stream, self._bandwidth.download)) as messages:
                async for message in messages:
                    values = await asyncio.to_thread(self._screen, message, part)
                    averaged: Averaged = await reducer.average(sender, part, values, message.weight)
                    part += 1
                    await self._bandwidth.upload.take(len(averaged.data), urgent=True)
                    yield averaging_pb2.AveragingData(
                        code=averaging_pb2.AVERAGED_PART,
                        tensor_part=runtime_pb2.Tensor(buffer=averaged.data, size=[values.numel()]),
                        weight=averaged.weight,
                    )
        except Exception as error:
            logger.warning("%s was left out: %s", sender_id, repr(error))
            yield averaging_pb2.AveragingData(code=averaging_pb2.INTERNAL_ERROR)
        finally:
            if part != reducer.num_parts:
                logger.warning("%s left after %d parts", sender_id, part)
                await self.ban(sender_id)

    def _screen(self, message: Any, part: int) -> Tensor:
        if part >= len(self.parts_for_local_averaging):
            raise self._reject("too_many")
        try:
            values = self._codec.decode(
                message.tensor_part.buffer, self.parts_for_local_averaging[part].numel()
            )
        except ValueError as error:
            raise self._reject("shape") from error
        reason = screen_part(values, message.weight, self._weight_limit)
        if reason:
            raise self._reject(reason)
        return values

    def _reject(self, reason: str) -> AllreduceException:
        self.tally.rejected[reason] += 1
        return AllreduceException(f"a contribution was left out: {reason}")


async def _then_set(items: AsyncGenerator[Any, None], event: asyncio.Event) -> AsyncGenerator[Any, None]:
    try:
        async with aclosing(items):
            async for item in items:
                yield item
    finally:
        event.set()


async def _timely(
    stream: AsyncGenerator[Any, None], seconds: float, begin: asyncio.Event
) -> AsyncGenerator[Any, None]:
    """The items of ``stream``, each within ``seconds``, the first within so many after ``begin``.

    The first is asked for at once all the same: hivemind's stream closes its socket only if it was begun.
    """
    async with aclosing(stream):
        while True:
            item = asyncio.create_task(_next(stream))
            try:
                await begin.wait()
                async with asyncio.timeout(seconds):
                    message = await item
            finally:
                item.cancel()
                await asyncio.gather(item, return_exceptions=True)
            if message is None:
                return
            yield message


async def _next(stream: AsyncGenerator[Any, None]) -> Any:
    return await anext(stream, None)
