"""Loaded by Python itself in a node of `link.py`: writes how late its event loop is, a line per second.

DUPT_LOOP_LAG names the file. A line has the time, by how much a wake-up was late at worst in that second,
and how much of that the loop's thread was computing; the rest of it, the thread waited for a core.
"""

import asyncio
import os
import sys
import time

TICK_SECONDS, LINE_SECONDS = 0.02, 1.0


async def tick(path: str) -> None:
    """Go on until cancelled."""
    with open(path, "a", buffering=1) as file:  # noqa: PTH123 (pathlib would be imported into every process)
        while True:
            worst, ends = (0.0, 0.0), time.monotonic() + LINE_SECONDS
            while time.monotonic() < ends:
                wall, own = time.monotonic(), time.thread_time()
                await asyncio.sleep(TICK_SECONDS)
                late = time.monotonic() - wall - TICK_SECONDS
                worst = max(worst, (late, min(late, time.thread_time() - own)))
            print(time.monotonic(), *worst, file=file)


def measure(path: str) -> None:
    """From now on the loop that `uvloop.run` runs is measured."""
    import uvloop

    run = uvloop.run

    async def both(main):
        ticking = asyncio.create_task(tick(path))
        try:
            return await main
        finally:
            ticking.cancel()

    uvloop.run = lambda main: run(both(main))


if "dupt_swarm.network.process" in sys.orig_argv and os.environ.get("DUPT_LOOP_LAG"):
    measure(os.environ["DUPT_LOOP_LAG"])
