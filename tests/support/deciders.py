"""Peers that decide together over loopback, each with its own daemon: what ships, but for the training."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.rounds.deciding import Context, Deciding
from dupt_swarm.network.rounds.exchange import RoundExchange
from dupt_swarm.network.rounds.pledges import Pledges
from dupt_swarm.network.rounds.reduce import Reduce
from dupt_swarm.network.rounds.session import Ended
from dupt_swarm.network.rounds.share import Share
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.codec import part_sizes
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Word
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded


class Seen:
    """What a peer sees of the others; a test changes it.

    Attributes:
        at: ids of those at each state, by its digest.
    """

    def __init__(self) -> None:
        self.at: dict[str, set[str]] = {}
        self.gone: set[str] = set()
        self.unable: set[str] = set()
        self.refused: set[str] = set()

    def here(self, state: str) -> Collection[str]:
        """See `Others`."""
        return self.at.get(state, set()) - self.gone

    def present(self, state: str) -> Collection[str]:
        """See `Others`."""
        return self.at.get(state, set())

    @property
    def coming(self) -> Collection[str]:
        """See `Others`."""
        return ()

    def admits(self, peer_id: str) -> bool:
        """See `Others`."""
        return peer_id not in self.refused


def first_state(manifest: Manifest, numel: int, electorate: Electorate) -> ReplicaState:
    """Of a swarm with these members, after as many rounds as that says."""
    names = build_outer(manifest).buffer_names
    buffers = {name: torch.zeros(numel) for name in sorted(names)}
    values = torch.linspace(-1, 1, numel)
    return ReplicaState(electorate.round, 0, ((numel,),), values, buffers, electorate=electorate)


def step(
    manifest: Manifest,
    before: ReplicaState,
    average: Tensor,
    tokens: int,
    makers: Collection[str],
) -> ReplicaState:
    """The state that follows from ``before`` by this average of what these have brought."""
    following = NextState(build_outer(manifest), before)
    for number, part in enumerate(torch.split(average.clone(), part_sizes(average.numel()))):
        following.take(number, part)
    return following.finish(tokens, makers)


def state_of(ended: Ended) -> ReplicaState:
    """The state that was computed, which is the one that was decided upon."""
    assert ended.computed is not None
    assert ended.computed.after.digest == ended.link.after
    return ended.computed.after


class Decider:
    """One peer.

    Attributes:
        deciding: what ships.
        seen: what it sees of others.
        proofs: pairs of words that contradict each other, as it has found them.
    """

    def __init__(
        self,
        manifest: Manifest,
        station: Any,
        numel: int,
        *,
        callable: bool = True,
    ) -> None:
        """Others can call it, if it is ``callable``."""
        self.manifest, self.station, self.callable = manifest, station, callable
        self.seen, self.proofs = Seen(), list[tuple[Word, Word]]()
        self.blobs = Exchange(station.p2p)
        self.context = Context(
            manifest,
            station.p2p,
            station.key,
            self.seen,
            self._exchange(numel),
            Pledges(station.folder / "pledges.json"),
            callable,
        )
        self.deciding = Deciding(
            self.context, self._begin, expose=lambda one, other: self.proofs.append((one, other))
        )

    def _exchange(self, numel: int) -> RoundExchange:
        if self.manifest.rounds.exchange == "reduce":
            return Reduce(self.manifest, numel, self.station.p2p, callable=self.callable)
        return Share(self.manifest, numel, self.blobs)

    def _begin(self, before: ReplicaState) -> NextState:
        return NextState(build_outer(self.manifest), before)

    @property
    def peer_id(self) -> str:
        """Its peer id."""
        return str(self.station.peer_id)

    async def open(self) -> None:
        """Begin to answer others."""
        await self.station.p2p.serve(self.blobs)
        await self.deciding.open()

    def reach(self, state: ReplicaState, others: Iterable[str]) -> None:
        """It is at ``state``, and sees ``others`` there."""
        self.seen.at[state.digest] = {*others} - {self.peer_id}
        self.deciding.reach(state)

    async def end(self, values: Tensor, tokens: int = 10) -> Ended:
        """Bring a contribution, again whenever it is rejected, and wait for how the state is left."""
        while (ended := await self.deciding.end(encoded(values, self.manifest), tokens)) is None:
            pass
        return ended

    async def close(self) -> None:
        """It says nothing any more."""
        running = self.deciding._running
        self.deciding.rest()
        if running is not None:
            with suppress(asyncio.CancelledError):
                await running


@asynccontextmanager
async def deciding_at(
    stations: Callable[..., Any],
    count: int = 3,
    *,
    manifest: Manifest,
    numel: int,
    electing: int | None = None,
    hidden: Collection[int] = (),
    bandwidth: Bandwidth | None = None,
) -> AsyncIterator[tuple[list[Decider], ReplicaState]]:
    """So many peers, and the state at which they are; so many of them decide, or all.

    Those at the places in ``hidden`` cannot be called; the first one has this ``bandwidth``.
    """
    async with stations(count, manifest) as started:
        if bandwidth is not None:
            started[0].p2p.bandwidth = bandwidth
        deciders = [
            Decider(manifest, station, numel, callable=place not in hidden)
            for place, station in enumerate(started)
        ]
        for each in deciders:
            await each.open()
            each.seen.unable = {deciders[place].peer_id for place in hidden}
        members = [each.peer_id for each in deciders[:electing]]
        state = first_state(manifest, numel, Electorate().after(members, weak=True))
        for each in deciders:
            each.reach(state, [other.peer_id for other in deciders])
        try:
            yield deciders, state
        finally:
            for each in deciders:
                await each.close()
