"""How fast this peer may send and receive: token buckets that its traffic waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.limits import Budget
from dupt_swarm.replica.codec import build_codec, encoded_size

BURST_SECONDS = 1.0
# What is so short does not wait behind what is long, as far as it stays in this part of the rate.
SHORT_BYTES, SHORT_RATIO = 16 << 10, 0.5
GIVE_WAY_SECONDS = 0.05
# What is in no hurry waits while a round is being ended, but not for ever: rounds may follow one another.
RESERVED_SECONDS = 10.0
# A round's messages must fit into this part of its time limit, so that a slow moment does not fail it.
ROUND_RATIO = 0.5


class TokenBucket:
    """On average at most ``rate`` bytes per second, in bursts of at most one second's worth.

    A message may be larger than the burst: it goes as soon as anything is left, and those after it
    wait until its debt is paid. FIFO within each priority.

    Attributes:
        rate: that rate; None: no limit.
        is_reserved: whether a round is being ended.
    """

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """``rate`` None: no limit. ``clock`` and ``sleep`` are for tests."""
        self.rate = rate
        self.is_reserved: Callable[[], bool] = lambda: False
        self._clock, self._sleep = clock, sleep
        self._left, self._filled = (rate or 0.0) * BURST_SECONDS, clock()
        self._short = Budget(clock())
        self._lines = {False: asyncio.Lock(), True: asyncio.Lock()}

    @property
    def debt_seconds(self) -> float:
        """How long what has passed already uses up all that may pass."""
        if self.rate is None:
            return 0.0
        self._refill(self.rate)
        return max(0.0, -self._left / self.rate)

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        """Wait until ``amount`` bytes may pass; ``urgent`` bytes (those of a round) take priority."""
        if self.rate is None:
            return
        line = self._lines[urgent]
        async with line:
            while (seconds := self._seconds_to_wait(urgent)) > 0:
                await self._sleep(seconds)
            self._left -= amount

    async def take_short(self, amount: int, *, urgent: bool = False) -> None:
        """As `take`, of a message that is short: what is long waits for it, and not the other way round."""
        if self.rate is not None and self.debt_seconds > 0:
            part = SHORT_RATIO * self.rate
            if self._short.take_if_left(amount, part, part * BURST_SECONDS, self._clock()):
                self._left -= amount
                return
        await self.take(amount, urgent=urgent)

    def charge(self, amount: int) -> None:
        """Let ``amount`` bytes pass at once; what comes next waits for them."""
        self._left -= amount

    async def take_patiently(self, amount: int) -> None:
        """As `take`, of what is in no hurry: after the round that is being ended, whatever the rate."""
        until = self._clock() + RESERVED_SECONDS
        while self.is_reserved() and self._clock() < until:
            await self._sleep(GIVE_WAY_SECONDS)
        await self.take(amount)

    def give_back(self, amount: int) -> None:
        """Return ``amount`` bytes that were not sent after all."""
        self._left += amount

    def _seconds_to_wait(self, urgent: bool) -> float:
        assert self.rate is not None
        self._refill(self.rate)
        if self._left <= 0:
            # Never so short that the clock might not advance.
            return max(-self._left / self.rate, 1e-3)
        return GIVE_WAY_SECONDS if not urgent and self._lines[True].locked() else 0.0

    def _refill(self, rate: float) -> None:
        now = self._clock()
        self._left = min(self._left + rate * (now - self._filled), rate * BURST_SECONDS)
        self._filled = now


class Bandwidth:
    """The two buckets of a peer."""

    def __init__(self, upload: float | None = None, download: float | None = None) -> None:
        """Bytes per second; None: no limit."""
        self.upload, self.download = TokenBucket(upload), TokenBucket(download)

    def check(self, manifest: Manifest, numel: int, others: int) -> None:
        """Refuse limits under which no round could end in time: everybody would wait for this peer.

        Args:
            manifest: for exchange and codecs, and the time limit of an exchange.
            numel: weights of the model.
            others: how many other oracles there are.

        Raises:
            UsageError: names the least rate that suffices.
        """
        seconds = manifest.rounds.allreduce_seconds
        buckets = (("upload", self.upload), ("download", self.download))
        for (limit, bucket), amount in zip(buckets, bytes_of_round(manifest, numel, others), strict=True):
            least = amount / (ROUND_RATIO * seconds)
            if bucket.rate is not None and bucket.rate < least:
                raise UsageError(
                    f"{limit} of {bucket.rate / 1e6:g}MB/s is too little here: a round moves up to "
                    f"{amount / 1e6:,.1f} MB within {seconds:g} s; allow at least "
                    f"{least / 1e6 + 0.005:.2f}MB, or do not limit it",
                    setting=f"max_{limit}",
                )


def bytes_of_round(manifest: Manifest, numel: int, others: int) -> tuple[int, int]:
    """The most that a peer must upload and download for a round to end, with so many other oracles."""
    encoding = manifest.encoding
    codecs = [build_codec(name, encoding) for name in (encoding.contribution, encoding.average)]
    contribution, average = (encoded_size(codec, numel) for codec in codecs)
    if manifest.rounds.exchange == "share":
        # Its own, which the others pass on to one another, and everybody else's.
        return contribution, contribution * max(1, others)
    # Its contribution to all, and its share of the average to all: each once at most.
    return contribution + average, contribution + average


async def paced(messages: AsyncGenerator[Any, None], bucket: TokenBucket) -> AsyncGenerator[Any, None]:
    """The protobuf ``messages`` of a round, not faster than ``bucket`` allows."""
    async with aclosing(messages):
        async for message in messages:
            await bucket.take(message.ByteSize(), urgent=True)
            yield message
