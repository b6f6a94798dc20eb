"""Tasks: a group whose cancellation leaves nothing in memory, and waiting for an event, but not for long."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


class TaskGroup(asyncio.TaskGroup):
    """`asyncio.TaskGroup` without the circles of references that a cancellation leaves (before Python 3.13).

    The error that goes on refers to the frames that it has passed. Upstream's own frame refers to the error,
    and the group, which is in those frames, to the task that keeps it. So what they had, such as a replica
    state of gigabytes, stayed until Python looked for garbage, which may take many rounds.
    """

    _parent_task: asyncio.Task[Any] | None

    async def __aexit__(self, *raised: Any) -> None:
        """See `asyncio.TaskGroup`."""
        try:
            await super().__aexit__(*raised)
        except asyncio.CancelledError as error:
            error.__traceback__ = None
            raise
        finally:
            self._parent_task = None
            del raised


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Until ``event`` is set, or so many seconds are over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
