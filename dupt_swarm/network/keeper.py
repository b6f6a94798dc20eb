"""The keeper of the replica state: it steps it, fetches newer ones, and holds what others may fetch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from hivemind.p2p import PeerID
from torch import Tensor

from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.exchange import Exchange
from dupt_swarm.network.messages import StateName
from dupt_swarm.network.view import Peer, View
from dupt_swarm.replica.blob import Blob, Index
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import Layout, ReplicaState, check_header
from dupt_swarm.replica.storage import load_state

FETCH_SECONDS = 600.0


class StateKeeper:
    """Holds the current replica state. States are immutable: each change is a new one.

    Attributes:
        newer: a fetched state that the trainer has not adopted yet.
    """

    def __init__(self, manifest: Manifest, exchange: Exchange) -> None:
        self.newer: ReplicaState | None = None
        self._outer = build_outer(manifest)
        self._exchange = exchange
        self._state: ReplicaState | None = None
        self._previous: ReplicaState | None = None

    @property
    def current(self) -> ReplicaState:
        """The current state; there must be one."""
        assert self._state is not None
        return self._state

    @property
    def name(self) -> StateName:
        """The name of the current state."""
        return name_of(self.current)

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """Of the outer optimizer."""
        return tuple(self._outer.buffer_names)

    @property
    def blobs(self) -> list[Blob]:
        """What others may fetch: this state, and the last one for downloads that have just begun."""
        return [state.blob for state in (self._state, self._previous) if state is not None]

    def replace(self, state: ReplicaState) -> None:
        """Make ``state`` the current one."""
        self._previous, self._state, self.newer = self._state, state, None

    def is_behind(self, peer: Peer, view: View, own_id: str) -> bool:
        """Whether ``peer`` has a state that we should have: see `View.best` for which one that is.

        Our own record lags, so ``own_id`` counts for the state that we hold, whatever it says.
        """
        mine = name_of(self.newer or self.current)
        theirs = peer.record
        if theirs.state_digest == mine.digest:
            return False

        def backers(digest: str) -> int:
            return len({*view.holders(digest)} - {own_id})

        return (theirs.swarm_tokens, backers(theirs.state_digest), theirs.state_digest) > (
            mine.tokens_total,
            backers(mine.digest) + 1,
            mine.digest,
        )

    async def load(self, path: Path) -> None:
        """Begin with the state saved at ``path``.

        Raises:
            CheckpointError: it cannot be read, or is of another outer optimizer.
        """
        state = await asyncio.to_thread(load_state, path)
        if sorted(state.buffers) != sorted(self._outer.buffer_names):
            raise CheckpointError(f"{path}: saved with another outer optimizer; start a new swarm")
        self.replace(state)

    async def step(self, average: Tensor, tokens: int) -> ReplicaState:
        """The state that follows from an average contribution; the current one stays.

        Raises:
            OverflowError: it would not be finite.
        """

        def compute() -> ReplicaState:
            state = self._outer.step(self.current, average, tokens)
            if not state.finite:
                raise OverflowError("the outer step is not finite")
            _ = state.digest  # hashed here, off the event loop
            return state

        return await asyncio.to_thread(compute)

    async def fetch(self, digest: str, donors: Sequence[str]) -> ReplicaState:
        """Download state ``digest`` from those who hold it, checked; the current one stays.

        Raises:
            NodeError: nobody could give it, or it does not fit the manifest.
        """
        peers = [PeerID.from_base58(donor) for donor in donors]
        index = await self._fetch_index(digest, peers)
        names = self._outer.buffer_names
        try:
            layout = self._state.layout if self._state else _layout_of(index)
            check_header(index, layout, names)
            blob = await self._exchange.fetch(index, peers, FETCH_SECONDS)
            return await asyncio.to_thread(ReplicaState.from_blob, blob, layout, names)
        except ValueError as error:
            raise NodeError(f"the swarm offers an unusable state: {error}") from error

    async def _fetch_index(self, digest: str, donors: Sequence[PeerID]) -> Index:
        problems = []
        for donor in donors:
            try:
                return await self._exchange.fetch_index(donor, digest)
            except Exception as error:
                # A donor may fail in any way that libp2p knows: try the next one.
                problems.append(f"{donor}: {str(error) or type(error).__name__}")
        raise NodeError("no peer could give the state: " + "; ".join(problems))


def name_of(state: ReplicaState) -> StateName:
    """The name of a state."""
    return StateName(state.round, state.tokens_total, state.digest)


def _layout_of(index: Index) -> Layout:
    layout = index.header.get("layout")
    if not isinstance(layout, list) or not all(
        isinstance(shape, list) and all(isinstance(size, int) and size > 0 for size in shape)
        for shape in layout
    ):
        raise ValueError("it has no layout")
    return tuple(tuple(shape) for shape in layout)
