"""The time of the event loop, which a test may let pass without waiting."""

from __future__ import annotations

import asyncio


def loop_time() -> float:
    """Seconds."""
    return asyncio.get_running_loop().time()
