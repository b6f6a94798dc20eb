"""Streams: their frames, measured before they are read, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from hivemind.p2p import P2P

from dupt_swarm.network.p2p.rpc import CallError

READ_BYTES = 1 << 16
DRAIN_SECONDS = 0.1
READS_PER_FRAME = 3  # a mark, the length, and what it says


class FrameReader:
    """The reader of a stream, which refuses a frame that is announced too long before it reads it."""

    def __init__(self, reader: asyncio.StreamReader, check: Callable[[int], None]) -> None:
        """``check`` raises `CallError` before so many bytes are read."""
        self._reader, self._check = reader, check
        self._one_at_a_time = asyncio.Lock()
        self._refused = False
        self._awaited = 0  # reads until nobody is impatient any more

    @contextmanager
    def impatient(
        self, frames: int, seconds: float, whole: float, late: Callable[[str], CallError]
    ) -> Iterator[None]:
        """The first ``frames`` must come in time, and the block end within ``whole`` seconds.

        Otherwise reading raises what ``late`` gives.
        """

        def give_up(reason: str) -> None:
            self._refused = True
            self._reader.set_exception(late(reason))

        def give_up_waiting() -> None:
            if self._awaited > 0:
                give_up("nothing came")

        self._awaited = frames * READS_PER_FRAME
        loop = asyncio.get_running_loop()
        timers = (
            loop.call_later(seconds, give_up_waiting),
            loop.call_later(whole, give_up, "it took too long"),
        )
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    async def readexactly(self, count: int) -> bytes:
        """As of `asyncio.StreamReader`.

        Raises:
            CallError: more than a frame may have, or too late.
        """
        if count > P2P.HEADER_LEN:
            try:
                self._check(count)
            except CallError:
                self._refused = True
                raise
        async with self._one_at_a_time:
            data = await self._reader.readexactly(count)
        self._awaited -= 1
        return data

    async def until_hung_up(self) -> None:
        """Read on until the other side hangs up; at once if it has been refused."""
        async with self._one_at_a_time:
            while not self._refused and await self._reader.read(READ_BYTES):
                pass


class HeldOpen:
    """The writer of a stream, which somebody else closes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.write, self.drain = writer.write, writer.drain

    def close(self) -> None:
        """Not yet."""


@contextmanager
def leaving_in(seconds: float | None) -> Iterator[None]:
    """Cancel the task that runs this block if it does not leave the block in time; None: it has time.

    Unlike `asyncio.timeout` it may enclose a ``yield``: libp2p's handler then waits for the receiver.
    """
    task = asyncio.current_task()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(seconds, task.cancel) if seconds else None
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


async def then_drain(
    replies: AsyncGenerator[Any, None], requests: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    """``replies``, and then the ``requests`` that are here already go by unread.

    hivemind hands over five at most, and with a sixth at hand it would never notice that nobody reads.
    """
    try:
        async with aclosing(replies):
            async for reply in replies:
                yield reply
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS), aclosing(requests):
                async for _ in requests:
                    pass
