"""Streams of an all-reduce's messages, on the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from hivemind.averaging.allreduce import AllreduceException


async def then_set(items: AsyncGenerator[Any, None], event: asyncio.Event) -> AsyncGenerator[Any, None]:
    """The items; ``event`` is set after the last one, or when nobody wants more."""
    try:
        async with aclosing(items):
            async for item in items:
                yield item
    finally:
        event.set()


async def timely(
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


async def expect(replies: AsyncGenerator[Any, None], code: int) -> Any:
    """The next one, which must have this code.

    Raises:
        AllreduceException: it has another one, or there is none.
    """
    message = await _next(replies)
    if message is None:
        raise AllreduceException("it hung up too early")
    if message.code != code:
        raise AllreduceException(f"it sent code {message.code} instead of {code}")
    return message


async def _next(stream: AsyncGenerator[Any, None]) -> Any:
    return await anext(stream, None)
