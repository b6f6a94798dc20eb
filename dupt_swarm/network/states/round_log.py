"""The log of rounds: what is needed to compute the last ones again, for those who are behind or audit."""

from __future__ import annotations

from collections.abc import Mapping

from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.log_entry import LogEntry
from dupt_swarm.replica.state import ReplicaState


class RoundLog:
    """Entries, the blobs that they name, and now and then a state to begin from.

    Kept are the last ``rounds`` rounds and, until a later state to begin from is as old, up to twice as
    many; the last one always, the others as long as all together take at most ``limit`` bytes.
    """

    def __init__(self, rounds: int, limit: int) -> None:
        """``rounds`` and ``limit`` are what is kept; see `NodeSettings`."""
        self._rounds, self._limit = rounds, limit
        self._entries: dict[str, LogEntry] = {}  # by the digest of the state that follows
        self._blobs: dict[str, dict[str, Blob]] = {}  # of each entry, likewise
        self._states: dict[str, ReplicaState] = {}  # by digest

    def add(self, entry: LogEntry, blobs: Mapping[str, Blob], before: ReplicaState) -> None:
        """A round has ended here, or was computed again, from the state ``before``."""
        self._entries[entry.after] = entry
        self._blobs[entry.after] = dict(blobs)
        if not any(entry.round - state.round <= self._rounds for state in self._states.values()):
            self._states[entry.before] = before
        self._trim()

    def since(self, digest: str, after: str) -> list[LogEntry]:
        """The rounds up to the state ``after``: from state ``digest`` on, or all that are kept."""
        chain: list[LogEntry] = []
        while after != digest and after in self._entries:
            chain.insert(0, self._entries[after])
            after = chain[0].before
        return chain

    def makers(self, before: str, after: str) -> frozenset[str] | None:
        """Ids of the peers whose contributions led from one state to the other.

        None: the rounds between are not all kept, or only averages are.
        """
        chain = self.since(before, after)
        if not chain or chain[0].before != before or any(entry.exchange != "share" for entry in chain):
            return None
        return frozenset(each.maker for entry in chain for each in entry.inputs)

    def get(self, digest: str) -> Blob | None:
        """A blob to serve, if it is kept."""
        state = self._states.get(digest)
        if state is not None:
            return state.blob
        return next((blobs[digest] for blobs in self._blobs.values() if digest in blobs), None)

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        inputs = [blob for blobs in self._blobs.values() for blob in blobs.values()]
        return [*inputs, *(state.blob for state in self._states.values())]

    @property
    def bytes(self) -> int:
        """How many bytes all blobs have together."""
        return sum(sum(blob.index.sizes) for blob in self.blobs)

    def _trim(self) -> None:
        newest = max(entry.round for entry in self._entries.values())
        self._forget([each for each in self._entries.values() if each.round <= newest - 2 * self._rounds])
        oldest_first = sorted(self._entries.values(), key=lambda entry: entry.round)
        while self.bytes > self._limit and len(oldest_first) > 1:
            self._forget([oldest_first.pop(0)])
        if self.bytes > self._limit:
            self._states.clear()

    def _forget(self, entries: list[LogEntry]) -> None:
        for entry in entries:
            del self._entries[entry.after], self._blobs[entry.after]
        beginnings = {entry.before for entry in self._entries.values()}
        self._states = {digest: state for digest, state in self._states.items() if digest in beginnings}
