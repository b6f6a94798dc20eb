"""Peers in one process that decide together; some of them lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import pytest
import torch

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.state import ReplicaState
from tests.support.deciders import Decider, deciding_at
from tests.support.turncoats import prepare
from tests.support.turncoats.orders import SpokenOrders

NUMEL = 3_000
TOKENS = 640
EXCESS, EXCESS_TOKENS = 30, 4
TIMES = {"matchmaking_seconds": 3, "chunk_seconds": 2, "allreduce_seconds": 8}
ROUND_SECONDS = 60.0  # within which a round ends in spite of all
JUDGE_SECONDS = 5.0


class Camp:
    """Some peers at one state.

    Attributes:
        peers: all of them.
        state: where the honest are.
        orders: to those that lie.
        pull: what all honest ones contribute, in place of noise; and those that lie the other way, `EXCESS`
            times as much, for `EXCESS_TOKENS` times the tokens.
    """

    def __init__(self, peers: Sequence[Decider], state: ReplicaState, orders: SpokenOrders) -> None:
        self.peers, self.state, self.orders = peers, state, orders
        self._seed = 0
        self.pull: torch.Tensor | None = None
        self._late: list[asyncio.Task[Any]] = []

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

    async def battle(self) -> Link:
        """A round: how the honest have left the state, all alike."""
        everybody = [each.peer_id for each in self.peers]
        ending = {each: asyncio.create_task(each.end(*self._brought_by(each))) for each in self.peers}
        async with asyncio.timeout(ROUND_SECONDS):
            found = [await ending[each] for each in self.honest]
        ended = [each for each in found if each is not None]  # else it was rejected
        assert len(ended) == len(found)
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

    def _brought_by(self, peer: Decider) -> tuple[torch.Tensor, int]:
        if self.pull is not None:
            lies = peer.peer_id in self.orders.attacks
            return (-EXCESS * self.pull, EXCESS_TOKENS * TOKENS) if lies else (self.pull, TOKENS)
        self._seed += 1
        return noise(self._seed), TOKENS

    def judge_late(self, condition: Callable[[], object]) -> None:
        """The honest look at what was proposed until that is so, but not for ever."""

        async def accepts(_: ReplicaState) -> bool:
            with suppress(TimeoutError):
                await until(condition, JUDGE_SECONDS)
            return True

        for each in self.honest:
            each.deciding.accepts = accepts

    @property
    def exposed(self) -> set[str]:
        """Ids of all peers against which one of the honest has a proof."""
        return {one.maker for each in self.honest for one, _ in each.proofs}

    async def close(self) -> None:
        """Nobody judges any more."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)


def noise(seed: int) -> torch.Tensor:
    """A contribution."""
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(seed)) * 1e-3


async def until(condition: Callable[[], object], seconds: float = ROUND_SECONDS) -> None:
    """Wait for it.

    Raises:
        TimeoutError: it was not so in time.
    """
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


Stations = Callable[..., AbstractAsyncContextManager[list[Any]]]


Camps = Callable[..., AbstractAsyncContextManager[Camp]]
"""Starts so many peers; so many of them decide, or all."""


def camps_of(stations: Stations, manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> Camps:
    """``async with camps(4) as camp``: so many peers that decide, in this process, which do as ordered."""
    orders = SpokenOrders()
    prepare(orders, monkeypatch.setattr)

    @asynccontextmanager
    async def start(count: int, electing: int | None = None) -> AsyncIterator[Camp]:
        deciding = deciding_at(stations, count, manifest=manifest, numel=NUMEL, electing=electing)
        async with deciding as (peers, state):
            camp = Camp(peers, state, orders)
            try:
                yield camp
            finally:
                await camp.close()

    return start


def ids(*peers: Decider) -> set[str]:
    """Of these."""
    return {each.peer_id for each in peers}
