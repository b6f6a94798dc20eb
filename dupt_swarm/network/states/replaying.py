"""Computing rounds again instead of fetching the state that they led to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.states.download import Donors
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.store import BYTES_PER_SECOND_MIN, FETCH_SECONDS
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.replica.log_entry import LogEntry
from dupt_swarm.replica.replay import claims_of, form_of_inputs, replay
from dupt_swarm.replica.state import ReplicaState

logger = logging.getLogger(__name__)


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


ASKED_MAX = 3  # peers of which one should have a log that reaches back to our state


@dataclass(frozen=True)
class Replaying:
    """What a peer does that is behind, before it fetches a whole state.

    Attributes:
        manifest: of the swarm.
        exchange: gives the log and the blobs.
        log: our own, to which the rounds are added.
        empty: gives memory for so many values of a state.
        always: whether to do so even where the state has fewer bytes.
    """

    manifest: Manifest
    exchange: Exchange
    log: RoundLog
    empty: Callable[[int], Tensor]
    always: bool

    async def replay(self, state: ReplicaState, digest: str, donors: Donors) -> ReplicaState | None:
        """The state ``digest``, computed from ours; None if it is better fetched, or cannot be had like this.

        Args:
            state: our own one.
            digest: of the one to get.
            donors: asked for those who hold it.
        """
        known: list[str] = []

        async def keepers() -> list[str]:
            # Who held the state a moment ago may be at the next one, and keeps the rounds before it.
            return list(dict.fromkeys([*known, *await donors()]))

        try:
            known += await donors()
            entries = await self._entries(state, digest, known)
            if not entries or not (self.always or self._pays(state, entries)):
                return None
            for entry in entries:
                blobs = await fetch_inputs(self.manifest, self.exchange, entry, state.anchor.numel(), keepers)
                after = await asyncio.to_thread(self._compute, state, entry, blobs)
                self.log.add(entry, blobs, state)
                state = after
        except Exception as error:
            # Whatever is wrong with a log or with what it names, the state itself may still be had.
            logger.warning("the rounds that were missed could not be computed again: %r", error)
            return None
        logger.info("computed %d rounds again: state %.8s", len(entries), digest)
        return state

    async def _entries(self, state: ReplicaState, digest: str, donors: Sequence[str]) -> list[LogEntry]:
        """The rounds between the two states, as one of the donors tells."""
        for donor in donors[:ASKED_MAX]:
            try:
                entries = await self.exchange.log_of(donor, state.digest)
            except CallError as error:
                logger.debug("%s gave no log of rounds: %s", donor, error)
                continue
            ends = [number for number, entry in enumerate(entries, 1) if entry.after == digest]
            if ends and entries[0].before == state.digest:
                return list(entries[: ends[0]])
        return []

    def _pays(self, state: ReplicaState, entries: list[LogEntry]) -> bool:
        numel = state.anchor.numel()
        inputs = sum(
            len(entry.inputs) * form_of_inputs(self.manifest, entry.exchange, numel).size for entry in entries
        )
        return inputs < 4 * numel * (1 + len(state.buffers))

    def _compute(self, state: ReplicaState, entry: LogEntry, blobs: dict[str, Blob]) -> ReplicaState:
        after = replay(self.manifest, state, entry, blobs, self.empty)
        if after.digest != entry.after:
            raise ValueError(f"round {entry.round} does not lead to the state that its log entry names")
        return after


async def fetch_inputs(
    manifest: Manifest, exchange: Exchange, entry: LogEntry, numel: int, donors: Donors
) -> dict[str, Blob]:
    """The blobs that went into a round, by digest, from those who kept them.

    Args:
        manifest: of the swarm.
        exchange: fetches.
        entry: names them.
        numel: values of the model.
        donors: asked for those who may have them.

    Raises:
        NodeError: nobody has one of them any more.
        ValueError: one of them is not what the entry says.
    """
    if entry.exchange != manifest.rounds.exchange:
        raise ValueError("the entry of the log is of another exchange than the manifest's")
    form = form_of_inputs(manifest, entry.exchange, numel)

    async def fetch(digest: str) -> Blob:
        index = await exchange.fetch_index(digest, await donors())
        form.check(index, claims_of(entry)[digest])
        seconds = FETCH_SECONDS + form.size / BYTES_PER_SECOND_MIN
        return await exchange.fetch(Assembly(index), donors, seconds)

    tasks = [asyncio.create_task(fetch(digest)) for digest in entry.digests]
    try:
        return dict(zip(entry.digests, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
