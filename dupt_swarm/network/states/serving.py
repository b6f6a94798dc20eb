"""What a donor serves, and to how many peers at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from dupt_swarm.replica.blob import Blob

LINGER_SECONDS = 120.0
LINGERING_MAX = 2


class BlobCache:
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

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        return list(self._blobs.values())

    def get(self, digest: str) -> Blob | None:
        """The blob if it is here; it then stays for a while."""
        blob = self._blobs.get(digest)
        if blob is not None:
            self._asked[digest] = self._clock()
        return blob


SLOTS = 4
# Small blobs have slots of their own: a tokenizer must not wait for downloads of whole states.
SMALL_BYTES = 16 << 20
SMALL_SLOTS = 64
STRANGERS_RATIO = 0.75  # of the slots, at most
# Downloads have two requests under way; a connection that broke may not have been noticed yet.
STREAMS_PER_PEER = 4
# A chunk of 1 MiB must reach each of those who are served at once within `download.CHUNK_SECONDS`.
BYTES_PER_SECOND_PER_SLOT = 100_000
# How long a stranger has its slot for certain, if others want it; a chunk that is under way is finished.
TURN_SECONDS = 10.0
# So long after it was refused a stranger keeps its place among those that ask: downloads ask every second.
ASKING_SECONDS, ASKING_MAX = 5.0, 256


class UploadSlots:
    """The peers that download from this one: few at once, so that each gets its chunks in time.

    There is no queue: a peer for which no slot is free is told so at once, and asks another donor, or later.
    Strangers, who are not trusted, leave a quarter to who is, however many they are: of one slot a second
    one. They take turns: while others ask again and again, one that has had its turn waits until those have
    had theirs.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        """``count``: how many peers at once; ``clock`` is for tests."""
        self._strangers_max = max(1, int(STRANGERS_RATIO * count))
        self._count = max(count, self._strangers_max + 1)
        self._streams: Counter[Hashable] = Counter()
        self._strangers: dict[Hashable, float] = {}  # since when each has its slot
        # Strangers that found none, in turn, and when they asked last.
        self._asking: dict[Hashable, float] = {}
        self._clock = clock

    @classmethod
    def within(cls, max_upload: float | None) -> UploadSlots:
        """As many as can share ``max_upload`` bytes per second, and no more than `SLOTS`."""
        share = SLOTS if max_upload is None else int(max_upload // BYTES_PER_SECOND_PER_SLOT)
        return cls(max(1, min(SLOTS, share)))

    @contextmanager
    def taken_by(self, peer: Hashable, *, stranger: bool = False) -> Iterator[bool]:
        """A slot for one request of ``peer`` while the block lasts; False if there is none."""
        if peer in self._streams:
            free = self._streams[peer] < STREAMS_PER_PEER and not self.is_turn_over(peer)
        else:
            free = len(self._streams) < self._count and (not stranger or self._is_next(peer))
        if not free:
            yield False
            return
        self._streams[peer] += 1
        if stranger:
            self._strangers.setdefault(peer, self._clock())
        try:
            yield True
        finally:
            self._streams[peer] -= 1
            self._streams = +self._streams
            if peer not in self._streams:
                self._strangers.pop(peer, None)

    def is_turn_over(self, peer: Hashable) -> bool:
        """Whether the stranger ``peer`` has had its slot for long enough, and others want it."""
        since = self._strangers.get(peer)
        if since is None or self._clock() - since < TURN_SECONDS:
            return False
        self._forget_asking()
        return bool(self._asking)

    def _is_next(self, stranger: Hashable) -> bool:
        """Whether there is a slot that nobody asked for before this one; if not, it has asked now."""
        self._forget_asking()
        before = list(self._asking)
        place = before.index(stranger) if stranger in self._asking else len(before)
        if place < self._strangers_max - len(self._strangers):
            self._asking.pop(stranger, None)
            return True
        if stranger in self._asking or len(before) < ASKING_MAX:
            self._asking[stranger] = self._clock()
        return False

    def _forget_asking(self) -> None:
        """A fetcher that no longer asks has gone elsewhere."""
        oldest = self._clock() - ASKING_SECONDS
        self._asking = {peer: asked for peer, asked in self._asking.items() if asked > oldest}
