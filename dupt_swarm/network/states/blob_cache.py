"""The blobs that a donor serves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

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
