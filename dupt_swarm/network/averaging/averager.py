"""Finds the group of a round and averages in it: hivemind's averager in our own event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from hivemind.averaging.group_info import GroupInfo
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P
from hivemind.utils import get_dht_time
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.allreduce import ScreeningRunner
from dupt_swarm.network.averaging.matchmaking import GroupRequest, LocalDHT, Member, RoundMatchmaking
from dupt_swarm.network.averaging.parts import average_alone
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.hivemind_internals import OpenAverager
from dupt_swarm.node.messages import GroupFormed


@dataclass(frozen=True)
class Average:
    """The outcome of one all-reduce.

    Attributes:
        values: the average contribution, fp32 ``[numel]``; None if the round failed here.
        tokens: tokens that went into it; of a failed round, those that should have.
        mates: ids of the other peers of the group.
        reason: why it failed, one word for the metrics, or empty.
        lost: peers that did not do their share.
        encoded: the bytes that ``values`` were decoded from, part by part; None if there are none.
    """

    values: Tensor | None
    tokens: int = 0
    mates: tuple[str, ...] = ()
    reason: str = ""
    lost: tuple[str, ...] = ()
    encoded: bytes | memoryview | None = None


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
        self.rejected: Counter[str] = Counter()  # contributions left out here, by reason

    async def open(self, p2p: P2P, numel: int) -> None:
        """Start serving other peers' requests, for vectors of ``numel`` values."""
        self._daemon, self._numel = p2p, numel
        self._search = RoundMatchmaking(
            p2p,
            f"flat-fp32-{numel}".encode(),
            self.dht,
            client_mode=self.client_mode,
            **self.matchmaking_kwargs,
        )
        await self.serve(p2p, self._search)

    async def average(
        self, contribution: bytes | memoryview, weight: float, *, round: int, digest: str, group_size: int
    ) -> Average:
        """Meet the peers of this round and average with them.

        Args:
            contribution: encoded; empty: it was not finite.
            weight: tokens that it stands for.
            round: the round that ends.
            digest: the state that the round started from: only peers of equal anchors may meet.
            group_size: live oracles; the group is formed as soon as so many are there, and at the end
                of the matchmaking time with as many as there are. 1: there is nobody else.
        """
        if not contribution:
            return Average(None, reason="not_finite")
        if group_size == 1:
            encoding = self._manifest.encoding
            own = await asyncio.to_thread(average_alone, contribution, self._numel, encoding)
            return Average(own.values, int(weight), encoded=own.encoded)
        self._search.group_key_manager.group_bits = f"{round:b}{int(digest[:8], 16):032b}"
        self._search.target_group_size = group_size
        weight_limit = self._search.weight_limit = self._manifest.weight_limit(round)
        now, patience = get_dht_time(), self._manifest.rounds.matchmaking_seconds
        about_us = Member(not self.client_mode, weight).pack()
        request = GroupRequest(now + patience, now + 1.5 * patience, about_us)
        with self.group_expected():
            self.searching = True
            try:
                group = await self._search.look_for_group(request)
            finally:
                self.searching = False
            _raise_if_cancelled()
            if group is None:
                return Average(None, reason="no_group")
            return await self._average_in(group, contribution, weight, weight_limit)

    async def _average_in(
        self, group: GroupInfo, contribution: bytes | memoryview, weight: float, weight_limit: float
    ) -> Average:
        rounds = self._manifest.rounds
        members = [Member.unpack(data, weight_limit) for data in group.gathered]
        tokens = round(sum(member.weight for member in members))
        runner = ScreeningRunner(
            manifest=self._manifest,
            contribution=contribution,
            numel=self._numel,
            weight_limit=weight_limit,
            bandwidth=self._bandwidth,
            p2p=self._daemon,
            servicer_type=type(self),
            prefix=self.prefix,
            group_id=group.group_id,
            weight=weight,
            ordered_peer_ids=group.peer_ids,
            peer_fractions=tuple(float(member.reduces) for member in members),
            sender_timeout=rounds.chunk_seconds,
            reducer_timeout=2 * rounds.chunk_seconds,
        )
        mates = tuple(str(peer) for peer in group.peer_ids if peer != self.peer_id)
        self._tell(GroupFormed(tokens, mates))
        with self.running(group, runner):
            try:
                async with asyncio.timeout(rounds.allreduce_seconds), aclosing(runner.run()) as averages:
                    [values] = [average async for average in averages]
            except TimeoutError:
                return Average(None, tokens, mates, reason="timeout")
            finally:
                runner.log_rejected()
                self.rejected += runner.rejected
        if not runner.complete:
            lost = tuple(runner.tally.lost_reducers)
            return Average(None, tokens, mates, reason="peer_lost", lost=lost)
        encoded = runner.tensor_part_container.encoded
        return Average(values, runner.tokens, mates, encoded=encoded)


def _raise_if_cancelled() -> None:
    """hivemind waits with `asyncio.wait_for`, which in Python 3.11 may swallow a cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
