"""Peers in one process that decide together, of whom some lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.rounds.session import Ended
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.state import ReplicaState
from tests.support.deciders import Decider, open_deciders
from tests.support.turncoats.orders import SpokenOrders

NUMEL = 3_000
TIMES = {"matchmaking_seconds": 3, "chunk_seconds": 2, "allreduce_seconds": 8}
ROUND_SECONDS = 60.0  # within which a round ends in spite of all


class Camp:
    """Some peers at one state.

    Attributes:
        peers: all of them.
        state: where the honest are.
        orders: to those that lie.
    """

    def __init__(self, peers: Sequence[Decider], state: ReplicaState, orders: SpokenOrders) -> None:
        self.peers, self.state, self.orders = peers, state, orders
        self._seed = 0
        self._late: list[asyncio.Task[Ended]] = []

    def peer(self, peer_id: str) -> Decider:
        """The one with this id."""
        return next(each for each in self.peers if each.peer_id == peer_id)

    def coordinator(self, ballot: int = 0) -> Decider:
        """Who coordinates this ballot of the present state."""
        order = drawn(self.state.electorate.members, self.state.digest)
        return self.peer(order[ballot % len(order)])

    @property
    def honest(self) -> list[Decider]:
        """Those without orders."""
        return [each for each in self.peers if each.peer_id not in self.orders.attacks]

    def order(self, attack: str, *liars: Decider) -> None:
        """These do so from now on, and no others do anything."""
        self.orders.attacks = {each.peer_id: attack for each in liars}

    async def battle(self, but: Collection[Decider] = ()) -> Link:
        """A round: how the honest have left the state, all alike; those ``but`` need not have left it."""
        everybody = [each.peer_id for each in self.peers]
        ending = {each: asyncio.create_task(each.end(self._values())) for each in self.peers}
        async with asyncio.timeout(ROUND_SECONDS):
            ended = [await ending[each] for each in self.honest if each not in but]
        self._late += [each for each in ending.values() if not each.done()]
        assert len({(each.link.state, each.link.choice, each.link.after) for each in ended}) == 1
        computed = [each.computed.after for each in ended if each.computed is not None]
        link = ended[0].link
        link.check(self.state.electorate)
        assert len(computed) == len(ended) and {each.digest for each in computed} == {link.after}
        assert all(torch.equal(each.anchor, computed[0].anchor) for each in computed)
        self.state = computed[0]
        for each in self.peers:
            each.reach(self.state, everybody)
        return link

    def _values(self) -> torch.Tensor:
        self._seed += 1
        return torch.randn(NUMEL, generator=torch.Generator().manual_seed(self._seed)) * 1e-3

    @property
    def exposed(self) -> set[str]:
        """Ids of all against whom one of the honest has a proof."""
        return {one.maker for each in self.honest for one, _ in each.proofs}

    async def close(self) -> None:
        """They say nothing any more."""
        for each in self.peers:
            await each.close()
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)


Stations = Callable[..., AbstractAsyncContextManager[list[Any]]]


@asynccontextmanager
async def camp_of(
    stations: Stations, manifest: Manifest, orders: SpokenOrders, count: int, electing: int | None = None
) -> AsyncIterator[Camp]:
    """So many peers, so many of whom decide, or all."""
    async with stations(count, manifest) as started:
        peers, state = await open_deciders(manifest, started, NUMEL, electing)
        camp = Camp(peers, state, orders)
        try:
            yield camp
        finally:
            await camp.close()
