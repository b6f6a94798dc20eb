"""The contributions of the rounds that are being ended: what the members of a group give one another."""

from __future__ import annotations

from collections import deque

from dupt_swarm.replica.blob import Blob

ROUNDS = 2  # a member that is late may still ask for those of the round before


class RoundShelf:
    """Blobs by digest, those of the last rounds."""

    def __init__(self) -> None:
        self._rounds: deque[dict[str, Blob]] = deque(maxlen=ROUNDS)

    def begin(self, blob: Blob) -> None:
        """Begin a round with our own contribution."""
        self._rounds.appendleft({blob.digest: blob})

    def add(self, blob: Blob) -> None:
        """Another one of this round has arrived."""
        self._rounds[0][blob.digest] = blob

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is here."""
        return next((blobs[digest] for blobs in self._rounds if digest in blobs), None)

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        return [blob for blobs in self._rounds for blob in blobs.values()]
