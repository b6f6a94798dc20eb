"""How many peers a donor serves at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

SLOTS = 4
# Small blobs have slots of their own: a tokenizer must not wait for downloads of whole states.
SMALL_BYTES = 16 << 20
SMALL_SLOTS = 64
STRANGERS_RATIO = 0.75  # of the slots, at most
# Downloads have two requests under way; a connection that broke may not have been noticed yet.
STREAMS_PER_PEER = 4
# A chunk of 1 MiB must reach each of those who are served at once within `download.CHUNK_SECONDS`.
BYTES_PER_SECOND_PER_SLOT = 100_000


class UploadSlots:
    """The peers that download from this one: few at once, so that each gets its chunks in time.

    There is no queue: a peer for which no slot is free is told so at once, and asks another donor, or later.
    Strangers leave a quarter to members, however many they are: of one slot a second one, for a member.
    """

    def __init__(self, count: int) -> None:
        """``count``: how many peers at once."""
        self._strangers_max = max(1, int(STRANGERS_RATIO * count))
        self._count = max(count, self._strangers_max + 1)
        self._streams: Counter[Hashable] = Counter()
        self._strangers: set[Hashable] = set()

    @classmethod
    def within(cls, max_upload: float | None) -> UploadSlots:
        """As many as can share ``max_upload`` bytes per second, and no more than `SLOTS`."""
        share = SLOTS if max_upload is None else int(max_upload // BYTES_PER_SECOND_PER_SLOT)
        return cls(max(1, min(SLOTS, share)))

    @contextmanager
    def taken_by(self, peer: Hashable, *, stranger: bool = False) -> Iterator[bool]:
        """A slot for one request of ``peer`` while the block lasts; False if there is none."""
        if peer in self._streams:
            free = self._streams[peer] < STREAMS_PER_PEER
        else:
            free = len(self._streams) < self._count
            free = free and not (stranger and len(self._strangers) >= self._strangers_max)
        if not free:
            yield False
            return
        self._streams[peer] += 1
        if stranger:
            self._strangers.add(peer)
        try:
            yield True
        finally:
            self._streams[peer] -= 1
            self._streams = +self._streams
            self._strangers &= self._streams.keys()
