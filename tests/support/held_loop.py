"""How long one callback keeps an event loop from all others."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

HELD_SECONDS_MAX = 0.02  # of a processor, by one callback of the event loop
# What this takes on the machine on which that limit was set; a slower one has more time.
REFERENCE = bytes(4 << 20)
REFERENCE_SECONDS = 0.0035
TIMES = 5  # that work is measured; the shortest also waits least for others, and for memory


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
    return HELD_SECONDS_MAX * max(1.0, seconds_of(lambda: hashlib.sha256(REFERENCE)) / REFERENCE_SECONDS)


def seconds_of(work: Callable[[], object]) -> float:
    """Of a processor, that ``work`` takes: the shortest of all times that it is measured."""
    times = []
    for _ in range(TIMES):
        before = time.thread_time()
        work()
        times.append(time.thread_time() - before)
    return min(times)
