"""What is said of files that are no part of a corpus, because they could not be read."""

from __future__ import annotations

from collections.abc import Sequence

from dupt_swarm.learning.left_out import LeftOut
from peers.screen.words import plural

NAMED = 3


def sentences(left_out: Sequence[LeftOut]) -> list[str]:
    """How many, then the first few with the reason; nothing if there are none."""
    if not left_out:
        return []
    named = [f"left out: {one.reason}" for one in left_out[:NAMED]]
    more = len(left_out) - len(named)
    count = f"{plural(len(left_out), 'unreadable file')} left out of the corpus (--strict refuses it instead)"
    return [count, *named, *([f"left out: {more} more"] if more else [])]
