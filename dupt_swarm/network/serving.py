"""What a donor offers, and to how many at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from dupt_swarm.replica.blob import Blob

LINGER_SECONDS = 120.0
LINGERING_MAX = 2
PLACES = 4
# What is small is served beside the places: a tokenizer must not wait for the downloads of whole states.
SMALL_BYTES = 16 << 20
SMALL_PLACES = 64
# Downloads have two requests under way; a connection that broke may not have been noticed yet.
STREAMS_PER_PEER = 4
# A chunk of 1 MiB must reach each of those who are served at once within `download.SILENCE_SECONDS`.
BYTES_PER_SECOND_PER_PLACE = 100_000


class Shelf:
    """The blobs that are served: those put there last, and older ones while they are asked for.

    Rounds may be shorter than a download, so a state must outlive the next states: it stays while the
    last request for it is less than `LINGER_SECONDS` old. At most `LINGERING_MAX` of them, those asked
    for last: each may take as much memory as the model and its outer buffers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._blobs: dict[str, Blob] = {}
        self._asked: dict[str, float] = {}

    def put(self, blobs: Sequence[Blob]) -> None:
        """Serve ``blobs`` from now on."""
        latest = {blob.digest: blob for blob in blobs}
        since = self._clock() - LINGER_SECONDS
        wanted = [digest for digest in self._blobs if self._asked.get(digest, since) > since]
        older = sorted((digest for digest in wanted if digest not in latest), key=self._asked.__getitem__)
        self._blobs = {digest: self._blobs[digest] for digest in older[-LINGERING_MAX:]} | latest
        self._asked = {digest: when for digest, when in self._asked.items() if digest in self._blobs}

    def get(self, digest: str) -> Blob | None:
        """The blob if it is here; it then stays for a while."""
        blob = self._blobs.get(digest)
        if blob is not None:
            self._asked[digest] = self._clock()
        return blob


class Places:
    """Who downloads from this peer: few at once, so that each gets its chunks within the time limits.

    There is no queue: who finds no place hears so at once, and asks another donor or again later.
    """

    def __init__(self, count: int) -> None:
        """``count``: how many peers at once."""
        self._count = count
        self._streams: Counter[Hashable] = Counter()

    @classmethod
    def within(cls, max_upload: float | None) -> Places:
        """As many as can share ``max_upload`` bytes per second, and no more than `PLACES`."""
        share = PLACES if max_upload is None else int(max_upload // BYTES_PER_SECOND_PER_PLACE)
        return cls(max(1, min(PLACES, share)))

    @contextmanager
    def taken_by(self, peer: Hashable) -> Iterator[bool]:
        """A place for one request of ``peer`` while the block lasts, or False if there is none."""
        if peer in self._streams:
            free = self._streams[peer] < STREAMS_PER_PEER
        else:
            free = len(self._streams) < self._count
        if not free:
            yield False
            return
        self._streams[peer] += 1
        try:
            yield True
        finally:
            self._streams[peer] -= 1
            self._streams = +self._streams
