"""The exchange `reduce`: a butterfly all-reduce, in which each member averages one share of the vector."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import aclosing, suppress

from hivemind.p2p import PeerID

from dupt_swarm.network.averaging.allreduce import ScreeningRunner
from dupt_swarm.network.averaging.average import Average, Evidence, Means, Offer
from dupt_swarm.network.averaging.comparing import Comparing
from dupt_swarm.network.averaging.parts import average_alone
from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.averaging.reducers import Reducers
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.replay import average_form


class Reduce:
    """See `RoundExchange`."""

    def __init__(self, means: Means) -> None:
        self.rejected: Counter[str] = Counter()
        self._means, self._manifest, self._me = means, means.manifest, means.me
        self._reducers = Reducers(means.p2p, means.manifest)
        self._comparing = Comparing(means.p2p, means.manifest.swarm_id)

    async def open(self) -> None:
        """See `RoundExchange`."""
        if self._means.callable:
            await self._reducers.start()
            await self._comparing.start()

    async def prepare(self, offer: Offer) -> Statement:
        """See `RoundExchange`."""
        return self._means.state(Claim(offer.round, offer.state, offer.tokens, self._me))

    async def alone(self, offer: Offer, statement: Statement) -> Average:
        """See `RoundExchange`."""
        tokens = statement.claim.tokens
        encoded = await asyncio.to_thread(
            average_alone, offer.contribution, self._means.numel, self._manifest.encoding, offer.take
        )
        evidence = await self._evidence(encoded, tokens, offer, (self._me,))
        return Average(tokens, contributors=(self._me,), evidence=evidence)

    async def average(self, roll: Roll, offer: Offer) -> Average:
        """See `RoundExchange`."""
        rounds, mates = self._manifest.rounds, roll.mates_of(self._me)
        runner = self._runner(roll, offer)
        tally, encoded = runner.tally, None
        with self._reducers.reducing(runner), suppress(TimeoutError):
            try:
                async with asyncio.timeout(rounds.allreduce_seconds), aclosing(runner.run()) as averages:
                    [encoded] = [average async for average in averages]
            finally:
                self.rejected += runner.conclude()
                self._comparing.keep(roll, tally.receipts)
        if encoded is None or tally.lost_reducers:
            reason, broke = ("timeout", tally.silent) if encoded is None else ("peer_lost", tally.failed)
            return Average(
                roll.tokens,
                mates,
                reason,
                lost=tuple(sorted(tally.late_senders | broke)),
                broke=tuple(sorted(broke)),
                implausible=tuple(sorted(tally.bad_reducers)),
            )
        evidence = await self._evidence(encoded, tally.tokens, offer, tuple(roll.members))
        return Average(
            tally.tokens,
            mates,
            lost=tuple(sorted(tally.late_senders)),
            contributors=tuple(roll.members),
            implausible=runner.implausible,
            roll=roll,
            evidence=evidence,
        )

    async def compare(self, roll: Roll, others: Collection[str]) -> Sequence[Proof]:
        """See `RoundExchange`."""
        return await self._comparing.compare(roll, others)

    def _runner(self, roll: Roll, offer: Offer) -> ScreeningRunner:
        rounds = self._manifest.rounds
        order = roll.drawn  # of a small vector not everybody gets a share
        return ScreeningRunner(
            manifest=self._manifest,
            offer=offer,
            numel=self._means.numel,
            download=self._means.p2p.bandwidth.download,
            key=self._means.key,
            p2p=self._means.p2p,
            servicer_type=Reducers,
            prefix=self._manifest.swarm_id,
            group_id=bytes.fromhex(roll.id),
            ordered_peer_ids=tuple(PeerID.from_base58(each.maker) for each in order),
            peer_fractions=tuple(float(each.callable) for each in order),
            sender_timeout=rounds.chunk_seconds,
            reducer_timeout=2 * rounds.chunk_seconds,
        )

    async def _evidence(
        self, encoded: memoryview, tokens: int, offer: Offer, members: tuple[str, ...]
    ) -> Evidence:
        """The average as a blob: equal bytes on all peers."""
        form = average_form(self._manifest, self._means.numel)
        blob = await asyncio.to_thread(form.build, Claim(offer.round, offer.state, tokens), encoded)
        return Evidence((Input(digest=blob.digest, tokens=tokens),), members, {blob.digest: blob})
