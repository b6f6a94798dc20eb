"""The process that a node lives in, as the node sees it, and its background work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

CANCEL_SECONDS = 1.0
SHUTDOWN_SECONDS = 1.5


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """What the process offers its node.

    Attributes:
        run_dir: a folder for sockets.
        tell: passes each event of `messages` and each `View` to the parent process.
        give_up: ends this process, which is of no use any more; the parent starts another.
    """

    run_dir: Path
    tell: Callable[[object], None]
    give_up: Callable[[], None]


@asynccontextmanager
async def background(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run ``work`` until the block is left; if it fails before, the log says so."""
    task = asyncio.create_task(_logged(work))
    task.add_done_callback(lambda _: work.close())  # it may not even have begun
    try:
        yield
    finally:
        task.cancel()
        # Bounded: a library may swallow the cancellation, and what is closed next must have its turn.
        await asyncio.wait([task], timeout=CANCEL_SECONDS)


async def end(what: str, shutdown: Callable[[], Awaitable[object]]) -> None:
    """Await ``shutdown()``, but not for long: a library may wait there for a daemon that is dead."""
    try:
        async with asyncio.timeout(SHUTDOWN_SECONDS):
            await shutdown()
    except Exception as error:
        logger.warning("%s did not end well: %r", what, error)


async def _logged(work: Coroutine[object, object, None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("background work has failed")
