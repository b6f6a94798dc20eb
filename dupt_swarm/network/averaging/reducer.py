"""The reducer of one share of an all-reduce: collects, screens, averages, encodes once, and hashes that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from dupt_swarm.network.averaging.clock import loop_time
from dupt_swarm.network.averaging.receipt import ShareHash
from dupt_swarm.replica.aggregation import screen_norms, weighted_mean
from dupt_swarm.replica.codec import Codec


@dataclass(frozen=True)
class Averaged:
    """One averaged part: the bytes that every sender gets, and the tokens that went into it."""

    data: bytes
    weight: float


class PartReducer:
    """Averages each part over the senders that are still active.

    Part ``i`` is done when every active sender has sent it; a sender that fails stays in the parts that
    it had sent. Everybody, this peer included, gets the same bytes of each average, which is why all
    replicas stay alike whatever the codec loses. (It stands in for hivemind's `TensorPartReducer`.)

    Attributes:
        returned: hash of the averages so far. They come in order, as nobody sends a part before it has the
            average of the one before.
    """

    def __init__(self, num_parts: int, num_senders: int, codec: Codec, norm_ratio: float) -> None:
        self.num_parts = num_parts
        self.rejected_norms, self.returned = 0, ShareHash()
        self.finished = asyncio.Event()
        self._codec, self._norm_ratio = codec, norm_ratio
        self._usual_norm = 0.0  # the largest median of the parts so far
        self._active = set(range(num_senders))
        self._due: tuple[int, float] | None = None  # the part that half have sent, and since when
        self._waited = [0.0] * num_senders  # for each: seconds in which they waited for it in earlier parts
        self._received: list[dict[int, tuple[Tensor, float]]] = [{} for _ in range(num_parts)]
        self._results: list[asyncio.Future[Averaged]] = [
            asyncio.get_running_loop().create_future() for _ in range(num_parts)
        ]
        self._jobs: dict[int, asyncio.Task[None]] = {}

    async def average(self, sender: int, part: int, values: Tensor, weight: float) -> Averaged:
        """Submit a screened part, and wait for its average.

        Raises:
            ValueError: the sender was left out, or sent a part twice or out of range.
        """
        if sender not in self._active:
            raise ValueError("this sender was left out")
        if not 0 <= part < self.num_parts or part in self._jobs or sender in self._received[part]:
            raise ValueError(f"unexpected part {part}")
        if self._due is not None:
            self._waited[sender] = self._waits(sender)
        self._received[part][sender] = (values, weight)
        self._average_if_complete(part)
        return await asyncio.shield(self._results[part])

    def late(self, in_all: float, in_one: float) -> list[int]:
        """Senders for whom most have waited for longer than so many seconds, in all parts or in this one.

        Of two, neither is most.
        """
        if self._due is None:
            return []
        part, since = self._due
        if 2 * len(self._active & self._received[part].keys()) <= len(self._active):
            return []
        long = loop_time() - since > in_one
        return [sender for sender in self.lacking if long or self._waits(sender) > in_all]

    def awaited(self, seconds: float) -> list[int]:
        """Senders for whom half or more have waited for longer than so many seconds, and still wait."""
        return [sender for sender in self.lacking if self._waits(sender) > seconds]

    @property
    def lacking(self) -> list[int]:
        """Those who have not sent a part that half or more have sent."""
        if self._due is None:
            return []
        return sorted(self._active - self._received[self._due[0]].keys())

    def on_sender_failed(self, sender: int) -> None:
        """Stop waiting for this sender. (The name is hivemind's.)"""
        self._active.discard(sender)
        for part in range(self.num_parts):
            self._average_if_complete(part)

    def finalize(self) -> None:
        """Release all senders that are still waiting. (The name is hivemind's.)"""
        self.finished.set()
        for result in self._results:
            result.cancel()

    def _average_if_complete(self, part: int) -> None:
        received = self._received[part]
        if not received or part in self._jobs:
            return
        if self._active <= received.keys():
            self._due = None
            in_order = [received[sender] for sender in sorted(received)]
            self._jobs[part] = asyncio.create_task(self._average(part, in_order))
        elif self._due is None and 2 * len(self._active & received.keys()) >= len(self._active):
            self._due = part, loop_time()

    def _waits(self, sender: int) -> float:
        """Seconds that it has cost so far."""
        assert self._due is not None
        return self._waited[sender] + loop_time() - self._due[1]

    async def _average(self, part: int, received: Sequence[tuple[Tensor, float]]) -> None:
        result = self._results[part]
        try:
            averaged, left_out = await asyncio.to_thread(self._compute, received)
        except Exception as error:
            # Whatever the error, waiting senders must be released.
            if not result.done():
                result.set_exception(error)
                result.exception()  # maybe nobody waits any more
            return
        self.rejected_norms += left_out
        self._received[part].clear()
        if not result.done():
            result.set_result(averaged)

    def _compute(self, received: Sequence[tuple[Tensor, float]]) -> tuple[Averaged, int]:
        values, weights = zip(*received, strict=True)
        keep, median = screen_norms(values, weights, self._norm_ratio, self._usual_norm)
        self._usual_norm = max(self._usual_norm, median)
        kept = [pair for pair, sound in zip(received, keep, strict=True) if sound]
        mean = weighted_mean([values for values, _ in kept], [weight for _, weight in kept])
        weight = math.fsum(weight for _, weight in kept)
        averaged = Averaged(self._codec.encode(mean), weight)
        self.returned.add(averaged.data, averaged.weight)
        return averaged, len(received) - len(kept)
