"""Finding the group of a round, and averaging in it: hivemind's averager inside our own event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hivemind.averaging import DecentralizedAverager
from hivemind.averaging.averager import AveragingMode
from hivemind.averaging.group_info import GroupInfo
from hivemind.averaging.key_manager import GroupKeyManager
from hivemind.averaging.matchmaking import Matchmaking
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, PeerID
from hivemind.utils import get_dht_time
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.allreduce import ScreeningRunner
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.node.messages import GroupFormed
from dupt_swarm.replica.codec import build_codec
from dupt_swarm.replica.state import all_finite


@dataclass(frozen=True)
class Average:
    """The outcome of one all-reduce.

    Attributes:
        values: the average contribution, fp32 ``[numel]``; None if the round failed here.
        tokens: tokens that went into it; of a failed round, those that should have.
        mates: ids of the other peers of the group.
        reason: why it failed, one word for the metrics, or empty.
        lost: peers that did not do their share.
    """

    values: Tensor | None
    tokens: int = 0
    mates: tuple[str, ...] = ()
    reason: str = ""
    lost: tuple[str, ...] = ()


@dataclass
class _GroupRequest:
    """What `Matchmaking` reads of hivemind's `StepControl`, which would need processes of its own."""

    scheduled_time: float
    deadline: float
    data_for_gather: bytes

    def get_timeout(self) -> float:
        return max(0.0, self.deadline - float(get_dht_time()))


class _LocalDHT:
    """The part of `hivemind.DHT` that matchmaking needs, over a DHT node in the same event loop."""

    def __init__(self, node: DHTNode) -> None:
        self._node = node
        self.peer_id: PeerID = node.peer_id
        self.client_mode: bool = node.protocol.client_mode

    async def get(self, key: str, *, latest: bool, return_future: bool) -> Any:
        del return_future  # callers await the result either way
        return await self._node.get(key, latest=latest)

    async def store(self, *, return_future: bool, **record: Any) -> bool:
        del return_future
        return bool(await self._node.store(**record))


class _RoundKeys(GroupKeyManager):  # type: ignore[misc]
    """Group keys that name the round, and do not wander after each group as hivemind's do."""

    async def update_key_on_group_assembled(self, group_info: GroupInfo) -> None:
        del group_info


class SwarmAverager(DecentralizedAverager):  # type: ignore[misc]
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
        local = _LocalDHT(node)
        rounds = manifest.rounds
        super().__init__(
            [],  # what is averaged is handed over in each round
            local,
            start=False,
            prefix=manifest.swarm_id,
            min_matchmaking_time=rounds.matchmaking_seconds,
            # Who is accepted but hears of it too late is missed by the whole group.
            request_timeout=rounds.matchmaking_seconds / 2,
            client_mode=local.client_mode,
            allow_state_sharing=False,
            allreduce_timeout=rounds.allreduce_seconds,
        )
        self._manifest, self._tell = manifest, tell
        self._bandwidth = bandwidth or Bandwidth()
        self.rejected: Counter[str] = Counter()  # contributions left out here, by reason

    async def open(self, p2p: P2P, numel: int) -> None:
        """Begin to answer other peers' requests, for vectors of ``numel`` values."""
        self._p2p = p2p
        self._pending_groups_registered = asyncio.Event()
        self._pending_groups_registered.set()
        self._matchmaking = Matchmaking(
            p2p,
            f"flat-fp32-{numel}".encode(),
            self.dht,
            client_mode=self.client_mode,
            **self.matchmaking_kwargs,
        )
        self._matchmaking.group_key_manager = _RoundKeys(self.dht, self.prefix, "", None)
        if not self.client_mode:
            await self.add_p2p_handlers(p2p, namespace=self.prefix)

    async def average(
        self, contribution: Tensor, weight: float, *, round: int, digest: str, group_size: int
    ) -> Average:
        """Meet the peers of this round and average with them.

        Args:
            contribution: fp32 ``[numel]``; not changed.
            weight: tokens that it stands for.
            round: the round that ends.
            digest: the state that the round started from: only peers of equal anchors may meet.
            group_size: live oracles; the group is formed as soon as so many are there, and at the end
                of the matchmaking time with as many as there are. 1: there is nobody else.
        """
        if not all_finite(contribution):
            return Average(None, reason="not_finite")
        if group_size == 1:
            codec = build_codec(self._manifest)  # the same arithmetic as in a group
            return Average(codec.decode(codec.encode(contribution), contribution.numel()), int(weight))
        manager = self._matchmaking.group_key_manager
        manager.group_bits = f"{round:b}{int(digest[:8], 16):032b}"
        self._matchmaking.target_group_size = group_size
        now, patience = get_dht_time(), self._manifest.rounds.matchmaking_seconds
        mode = AveragingMode.CLIENT if self.client_mode else AveragingMode.NODE
        about_me = self.serializer.dumps([mode.value, weight])
        request = _GroupRequest(now + patience, now + 1.5 * patience, about_me)
        self._pending_groups_registered.clear()
        try:
            group = await self._matchmaking.look_for_group(request)
            if group is None:
                return Average(None, reason="no_group")
            return await self._average_in(group, contribution, weight)
        finally:
            self._pending_groups_registered.set()

    async def _average_in(self, group: GroupInfo, contribution: Tensor, weight: float) -> Average:
        rounds = self._manifest.rounds
        modes, weights = zip(*(self.serializer.loads(data) for data in group.gathered), strict=True)
        runner = ScreeningRunner(
            manifest=self._manifest,
            contribution=contribution,
            bandwidth=self._bandwidth,
            p2p=self._p2p,
            servicer_type=type(self),
            prefix=self.prefix,
            group_id=group.group_id,
            weight=weight,
            ordered_peer_ids=group.peer_ids,
            peer_fractions=tuple(float(mode == AveragingMode.NODE.value) for mode in modes),
            sender_timeout=rounds.chunk_seconds,
            reducer_timeout=2 * rounds.chunk_seconds,
        )
        mates = tuple(str(peer) for peer in group.peer_ids if peer != self.peer_id)
        self._tell(GroupFormed(round(sum(weights)), mates))
        with self._register_allreduce_group(group):
            self._running_groups[group.group_id].set_result(runner)
            try:
                values = await asyncio.wait_for(_only(runner), rounds.allreduce_seconds)
            except TimeoutError:
                return Average(None, round(sum(weights)), mates, reason="timeout")
            finally:
                runner.log_rejected()
                self.rejected += runner.rejected
        if not runner.complete:
            lost = tuple(runner.tally.lost_reducers)
            return Average(None, round(sum(weights)), mates, reason="peer_lost", lost=lost)
        return Average(values, runner.tokens, mates)


async def _only(runner: ScreeningRunner) -> Tensor:
    tensors: list[Tensor] = [tensor async for tensor in runner]
    return tensors[0]
