"""The store of the replica state: begins the next one, fetches newer ones, keeps what others may fetch."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from dupt_swarm.errors import CheckpointError, NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.layout import Layout
from dupt_swarm.network.states.download import Donors
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.messages import Downloading, StateName
from dupt_swarm.node.vectors import SharedVectors
from dupt_swarm.replica.blob import Assembly, Blob, Index
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.pool import VectorPool
from dupt_swarm.replica.state import ReplicaState, check_header
from dupt_swarm.replica.storage import load_state

# Time limit of a download: this, plus the time for its bytes at the slowest acceptable rate.
FETCH_SECONDS = 300.0
BYTES_PER_SECOND_MIN = 250_000
GENEROUS_RATIO, GENEROUS_NUMEL = 16, 1 << 28


class FalseClaimError(NodeError):
    """A state has arrived, or its index, and is not what was said of it."""


class StateStore:
    """Holds the current replica state. States are immutable: each change is a new one.

    Attributes:
        newer: a fetched state that the trainer has not adopted yet.
        last_arrival: when a download last went forward, on the clock of `time.monotonic`.
    """

    def __init__(
        self, manifest: Manifest, exchange: Exchange, tell: Callable[[object], None] = lambda _: None
    ) -> None:
        """``tell`` hears `Downloading` while a state is being fetched."""
        self.newer: ReplicaState | None = None
        self.last_arrival = 0.0
        self._manifest, self._tell = manifest, tell
        self._outer = build_outer(manifest)
        self._pool = VectorPool(spare=1 + len(self._outer.buffer_names))
        self._exchange = exchange
        self._state: ReplicaState | None = None
        self._previous: ReplicaState | None = None
        self._unfinished: Assembly | None = None
        self._told: Downloading | None = None

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
    def blobs(self) -> list[Blob]:
        """What others may fetch: this state, and the last one for downloads that have just begun."""
        return [state.blob for state in (self._state, self._previous) if state is not None]

    def replace(self, state: ReplicaState) -> None:
        """Make ``state`` the current one."""
        self._previous, self._state, self.newer = self._state, state, None

    def forget_previous(self) -> None:
        """Fetchers that have not begun get this state and not the last: the next one needs the memory."""
        self._previous = None

    def keep_in(self, vectors: SharedVectors) -> None:
        """From now on states are in ``vectors``, and the current one too. (It may copy gigabytes.)"""
        self._pool = vectors
        if self.current.anchor not in vectors:
            self._state = self.current.copied(vectors.empty)

    async def load(self, path: Path) -> None:
        """Begin with the state saved at ``path``.

        Raises:
            CheckpointError: it cannot be read, or is of another outer optimizer.
        """
        state = await asyncio.to_thread(load_state, path)
        if sorted(state.buffers) != sorted(self._outer.buffer_names):
            raise CheckpointError(f"{path}: saved with another outer optimizer; start a new swarm")
        self.replace(state)

    def following(self, before: ReplicaState) -> NextState:
        """The state that follows from one, to be computed from the average of a round."""
        return NextState(self._outer, before, self.empty)

    def empty(self, numel: int) -> Tensor:
        """Memory for a vector of a state; see `VectorPool`."""
        return self._pool.empty(numel)

    async def fetch(self, digest: str, donors: Donors, tokens: int | None = None) -> ReplicaState:
        """Download state ``digest`` from those who hold it, checked; the current one stays.

        Only chunks that differ from the states held here travel. A download that failed is resumed
        by the next one, as far as they have chunks in common.

        Args:
            digest: of the state.
            donors: asked for those who hold it, again and again.
            tokens: how many it is said to have; None: nobody said so.

        Raises:
            FalseClaimError: it does not fit the manifest, or has another number of tokens.
            NodeError: no donor could provide it.
        """
        try:
            known = await donors()
        except Exception as error:
            # Others may fail in any way that libp2p knows.
            raise NodeError(f"the peers that hold the state could not be looked up: {error!r}") from error
        index = await self._exchange.fetch_index(digest, known)
        names = self._outer.buffer_names
        try:
            layout = self._state.layout if self._state else self._layout_of(index)
            check_header(index, layout, names)
            if tokens is not None and index.header["tokens_total"] != tokens:
                raise ValueError(f"it has {index.header['tokens_total']:,} tokens, and not {tokens:,}")
            if index.header["round"] == 0 and self._manifest.initial_digest not in ("", digest):
                raise ValueError("it is of round 0, and not the one that the manifest names")
            self._unfinished = await asyncio.to_thread(self._begin, index)
            seconds = FETCH_SECONDS + sum(index.sizes) / BYTES_PER_SECOND_MIN
            blob = await self._exchange.fetch(self._unfinished, donors, seconds, self._tell_progress)
            self._unfinished = None
            return await asyncio.to_thread(ReplicaState.from_blob, blob, layout, names)
        except ValueError as error:
            raise FalseClaimError(f"the swarm offers an unusable state: {error}") from error

    def _begin(self, index: Index) -> Assembly:
        """An assembly with the chunks that are here already. (Runs in a thread: it copies gigabytes.)"""
        before = self._unfinished
        if before is not None and before.index.digest == index.digest:
            return before
        assembly = Assembly(index, lambda size: self.empty(size // 4).view(torch.uint8).numpy().data)
        for blob in self.blobs:
            assembly.reuse(blob)
        if before is not None:
            assembly.reuse_part(before)
        return assembly

    def _tell_progress(self, progress: Downloading) -> None:
        if self._told is None or progress.bytes_done > self._told.bytes_done:
            self.last_arrival = time.monotonic()
        self._told = progress
        self._tell(progress)

    def _layout_of(self, index: Index) -> Layout:
        layout = _parse_layout(index)
        numel, most = sum(math.prod(shape) for shape in layout), numel_max(self._manifest)
        if numel > most:
            raise ValueError(
                f"it has {numel:,} weights, and with this manifest at most {most:,} are accepted; "
                "give the manifest's `model` the size of what is trained"
            )
        return layout


def name_of(state: ReplicaState) -> StateName:
    """The name of a state."""
    return StateName(state.round, state.swarm_tokens, state.digest)


def numel_max(manifest: Manifest) -> int:
    """The most weights that a joiner accepts before it has a state to compare with: its memory is bounded.

    Generous, since a swarm may train any module under its manifest (see `CollaborativeOptimizer`).
    """
    return max(GENEROUS_RATIO * manifest.model.numel, GENEROUS_NUMEL)


def _parse_layout(index: Index) -> Layout:
    layout = index.header.get("layout")
    if not isinstance(layout, list) or not all(
        isinstance(shape, list) and all(isinstance(size, int) and size > 0 for size in shape)
        for shape in layout
    ):
        raise ValueError("it has no layout")
    return tuple(tuple(shape) for shape in layout)
