"""Waiting for something to happen."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_SECONDS = 90.0  # for what takes a few seconds on a machine that has nothing else to do


def wait_until(
    condition: Callable[[], Found],
    what: str = "what was waited for",
    seconds: float = PATIENCE_SECONDS,
    pause: float = 0.05,
) -> Found:
    """What ``condition`` returns as soon as that is true.

    Args:
        condition: is asked again and again.
        what: shall happen, for the message.
        seconds: after which it is given up.
        pause: seconds between two questions.

    Raises:
        AssertionError: it did not happen in time.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(pause)
    return found
