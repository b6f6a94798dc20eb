"""The exchange `reduce`: a butterfly all-reduce, in which each member averages one share of the vector.

Nobody can check a reducer, so it is for members that trust one another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress

from dupt_swarm.network.averaging.average import Average, Evidence, Means, Offer
from dupt_swarm.network.averaging.proof import Proof
from dupt_swarm.network.averaging.reduce.allreduce import AllReduce
from dupt_swarm.network.averaging.reduce.parts import average_alone
from dupt_swarm.network.averaging.reduce.reducers import Reducers
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.replay import average_form

logger = logging.getLogger(__name__)


class Reduce:
    """See `RoundExchange`."""

    def __init__(self, means: Means) -> None:
        self.rejected: Counter[str] = Counter()
        self._means, self._manifest, self._me = means, means.manifest, means.me
        self._reducers = Reducers(means.p2p, means.manifest)

    async def open(self) -> None:
        """See `RoundExchange`."""
        if self._means.callable:
            await self._reducers.start()

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
        """See `RoundExchange`. When a share does not arrive in time, the round fails."""
        run, reason = AllReduce(self._means, roll, offer, self._reducers.ask), "timeout"
        with self._reducers.reducing(run), suppress(TimeoutError):
            async with asyncio.timeout(self._manifest.rounds.allreduce_seconds):
                await run.run()
                reason = "peer_lost" if run.missing else ""
        if run.rejected:
            logger.warning("contributions left out of the average: %s", dict(run.rejected))
        self.rejected += run.rejected
        mates, members = roll.mates_of(self._me), tuple(roll.members)
        if reason:
            return Average(roll.tokens, mates, reason, lost=run.lost)
        evidence = await self._evidence(run.encoded, run.tokens, offer, members)
        return Average(run.tokens, mates, lost=run.lost, contributors=members, roll=roll, evidence=evidence)

    async def compare(self, roll: Roll, others: Collection[str]) -> Sequence[Proof]:
        """See `RoundExchange`: reducers sign nothing."""
        del roll, others
        return ()

    async def _evidence(
        self, encoded: memoryview, tokens: int, offer: Offer, members: tuple[str, ...]
    ) -> Evidence:
        """The average as a blob: equal bytes on all peers."""
        form = average_form(self._manifest, self._means.numel)
        blob = await asyncio.to_thread(form.build, Claim(offer.round, offer.state, tokens), encoded)
        return Evidence((Input(digest=blob.digest, tokens=tokens),), members, {blob.digest: blob})
