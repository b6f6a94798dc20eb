"""How long one callback keeps an event loop from all others."""

import asyncio
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

HELD_SECONDS_MAX = 0.02  # of a processor, by one callback of the event loop
# What this takes on the machine on which that limit was set; a slower one has more time.
REFERENCE = bytes(4 << 20)
REFERENCE_SECONDS = 0.0035


@contextmanager
def assert_not_held(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While the block lasts, which calls the method ``name``, no callback holds the event loop for long."""
    run, longest, by = asyncio.Handle._run, 0.0, ""

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest, by
        before = time.thread_time()
        run(handle)
        seconds = time.thread_time() - before
        if seconds > longest:
            longest, by = seconds, repr(handle)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.Handle, "_run", timed)
        yield
    assert longest < limit_here(), f"{name}: {by}"


def limit_here() -> float:
    """`HELD_SECONDS_MAX`, longer on a slower machine."""
    times = []
    for _ in range(5):
        before = time.thread_time()
        hashlib.sha256(REFERENCE).digest()
        times.append(time.thread_time() - before)
    return HELD_SECONDS_MAX * max(1.0, min(times) / REFERENCE_SECONDS)
