"""Finds the group of a round and averages in it: hivemind's averager in our own event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hivemind.averaging.group_info import GroupInfo
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P
from hivemind.utils import get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.average import Average, Offer, RoundExchange, sum_of_tokens
from dupt_swarm.network.averaging.matchmaking import GroupRequest, LocalDHT, Member, RoundMatchmaking
from dupt_swarm.network.averaging.reduce import Reduce
from dupt_swarm.network.averaging.share import Share
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.hivemind_internals import OpenAverager
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.messages import GroupFormed


@dataclass(frozen=True)
class Sharing:
    """What the exchange `share` needs: the exchange of blobs, and the peer's identity."""

    blobs: Exchange
    key: RSAPrivateKey


@dataclass(frozen=True)
class Means:
    """What there is to make an exchange of."""

    manifest: Manifest
    averager: OpenAverager
    p2p: P2P
    numel: int
    bandwidth: Bandwidth
    sharing: Sharing | None


async def _reduce(means: Means) -> RoundExchange:
    return Reduce(means.manifest, means.averager, means.p2p, means.numel, means.bandwidth)


async def _share(means: Means) -> RoundExchange:
    assert means.sharing is not None
    share = Share(means.manifest, means.p2p, means.numel, means.sharing.blobs, means.sharing.key)
    await share.open()
    return share


EXCHANGES = {"reduce": _reduce, "share": _share}


class SwarmAverager(OpenAverager):
    """`DecentralizedAverager` that is never forked: its servicer runs in the node's own event loop.

    One process instead of three has no pipes between them to hang on, and nothing to orphan.
    """

    def __init__(
        self,
        manifest: Manifest,
        node: DHTNode,
        tell: Callable[[GroupFormed], None] = lambda _: None,
        bandwidth: Bandwidth | None = None,
    ) -> None:
        """``tell`` is called when a group has formed, before anything is sent in it."""
        local = LocalDHT(node)
        rounds = manifest.rounds
        super().__init__(
            [],  # the values to average are passed in for each round
            local,
            start=False,
            prefix=manifest.swarm_id,
            min_matchmaking_time=rounds.matchmaking_seconds,
            # A follower that learns too late that it was accepted is missing from the whole group.
            request_timeout=rounds.matchmaking_seconds / 2,
            client_mode=local.client_mode,
            allow_state_sharing=False,
            allreduce_timeout=rounds.allreduce_seconds,
        )
        self._manifest, self._tell = manifest, tell
        self._bandwidth = bandwidth or Bandwidth()
        self.searching = False  # for the group of a round

    @property
    def rejected(self) -> Counter[str]:
        """Contributions left out here, by reason."""
        return self._exchange.rejected

    async def open(self, p2p: P2P, numel: int, sharing: Sharing | None = None) -> None:
        """Start serving other peers' requests, for vectors of ``numel`` values.

        ``sharing`` is what the exchange `share` needs besides.
        """
        means = Means(self._manifest, self, p2p, numel, self._bandwidth, sharing)
        self._exchange = await EXCHANGES[self._manifest.rounds.exchange](means)
        self._search = RoundMatchmaking(
            p2p,
            f"flat-fp32-{numel}".encode(),
            self.dht,
            client_mode=self.client_mode,
            check=self._exchange.check,
            **self.matchmaking_kwargs,
        )
        await self.serve(p2p, self._search)

    async def average(self, offer: Offer, group_size: int) -> Average:
        """Meet the peers of this round, which started from an equal state, and average with them.

        Args:
            offer: our contribution; no bytes: it was not finite.
            group_size: live oracles; the group is formed as soon as so many are there, and at the end
                of the matchmaking time with as many as there are. 1: there is nobody else.
        """
        if not offer.contribution:
            return Average(reason="not_finite")
        offer = await self._exchange.prepare(offer)
        if group_size == 1:
            return await self._exchange.alone(offer)
        self._search.group_key_manager.group_bits = f"{offer.round:b}{int(offer.state[:8], 16):032b}"
        self._search.target_group_size = group_size
        self._search.weight_limit = self._manifest.weight_limit(offer.round)
        now, patience = get_dht_time(), self._manifest.rounds.matchmaking_seconds
        about_us = Member(not self.client_mode, offer.weight, offer.statement).pack()
        request = GroupRequest(now + patience, now + 1.5 * patience, about_us)
        with self.group_expected():
            self.searching = True
            try:
                group = await self._search.look_for_group(request)
            finally:
                self.searching = False
            _raise_if_cancelled()
            if group is None:
                return Average(reason="no_group")
            return await self._average_in(group, offer)

    async def _average_in(self, group: GroupInfo, offer: Offer) -> Average:
        members = [Member.unpack(data, self._manifest.weight_limit(offer.round)) for data in group.gathered]
        mates = tuple(str(peer) for peer in group.peer_ids if peer != self.peer_id)
        self._tell(GroupFormed(sum_of_tokens(members), mates))
        return await self._exchange.average(group, members, offer)


def _raise_if_cancelled() -> None:
    """hivemind waits with `asyncio.wait_for`, which in Python 3.11 may swallow a cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
