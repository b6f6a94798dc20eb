"""The exchange `reduce`: a butterfly all-reduce, in which each member averages one share of the vector."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing

from hivemind.averaging.group_info import GroupInfo
from hivemind.p2p import P2P

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.allreduce import ScreeningRunner
from dupt_swarm.network.averaging.average import Average, Evidence, Offer, sum_of_tokens
from dupt_swarm.network.averaging.matchmaking import Member
from dupt_swarm.network.averaging.parts import average_alone
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.hivemind_internals import OpenAverager
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.replay import average_form


class Reduce:
    """See `RoundExchange`."""

    def __init__(
        self, manifest: Manifest, averager: OpenAverager, p2p: P2P, numel: int, bandwidth: Bandwidth
    ) -> None:
        """``averager`` takes the parts that others send; vectors have ``numel`` values."""
        self.rejected: Counter[str] = Counter()
        self._manifest, self._averager, self._p2p, self._bandwidth = manifest, averager, p2p, bandwidth
        self._me, self._numel = str(p2p.peer_id), numel

    async def prepare(self, offer: Offer) -> Offer:
        """See `RoundExchange`."""
        return offer

    def check(self, member: Member, peer_id: str) -> None:
        """See `RoundExchange`."""

    async def alone(self, offer: Offer) -> Average:
        """See `RoundExchange`."""
        encoding, tokens = self._manifest.encoding, int(offer.weight)
        encoded = await asyncio.to_thread(
            average_alone, offer.contribution, self._numel, encoding, offer.take
        )
        evidence = await self._evidence(encoded, tokens, offer, (self._me,))
        return Average(tokens, evidence=evidence)

    async def average(self, group: GroupInfo, members: list[Member], offer: Offer) -> Average:
        """See `RoundExchange`."""
        rounds, tokens = self._manifest.rounds, sum_of_tokens(members)
        runner = ScreeningRunner(
            manifest=self._manifest,
            offer=offer,
            numel=self._numel,
            bandwidth=self._bandwidth,
            p2p=self._p2p,
            servicer_type=type(self._averager),
            prefix=self._averager.prefix,
            group_id=group.group_id,
            ordered_peer_ids=group.peer_ids,
            peer_fractions=tuple(float(member.reduces) for member in members),
            sender_timeout=rounds.chunk_seconds,
            reducer_timeout=2 * rounds.chunk_seconds,
        )
        mates = tuple(str(peer) for peer in group.peer_ids if str(peer) != self._me)
        with self._averager.running(group, runner):
            try:
                async with asyncio.timeout(rounds.allreduce_seconds), aclosing(runner.run()) as averages:
                    [encoded] = [average async for average in averages]
            except TimeoutError:
                return Average(tokens, mates, reason="timeout")
            finally:
                runner.log_rejected()
                self.rejected += runner.rejected
        if not runner.complete:
            lost = tuple(runner.tally.lost_reducers)
            return Average(tokens, mates, reason="peer_lost", lost=lost)
        members_ids = tuple(map(str, group.peer_ids))
        evidence = await self._evidence(encoded, runner.tokens, offer, members_ids)
        return Average(runner.tokens, mates, evidence=evidence)

    async def _evidence(
        self, encoded: memoryview, tokens: int, offer: Offer, members: tuple[str, ...]
    ) -> Evidence:
        """The average as a blob: equal bytes on all peers."""
        form = average_form(self._manifest, self._numel)
        blob = await asyncio.to_thread(form.build, Claim(offer.round, offer.state, tokens), encoded)
        return Evidence((Input(digest=blob.digest, tokens=tokens),), members, {blob.digest: blob})
