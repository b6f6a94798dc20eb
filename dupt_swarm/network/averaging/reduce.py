"""The exchange `reduce`: a butterfly all-reduce, in which each member averages one share of the vector.

Nobody can check a reducer, so it is for members that trust one another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase
from hivemind.proto import averaging_pb2
from hivemind.utils.asyncio import achain, as_aiter

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.allreduce import AllReduce, Given, Group, Messages, average_alone
from dupt_swarm.network.averaging.exchange import Evidence, ExchangeOutcome, Offer, RoundContext
from dupt_swarm.network.averaging.pledge import Proof
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.node.reasons import Failure
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.replay import average_form

logger = logging.getLogger(__name__)


class Reducers(ServicerBase):  # type: ignore[misc]
    """Those of our groups, by the group's id."""

    def __init__(self, p2p: P2P, manifest: Manifest) -> None:
        self._p2p, self._prefix, self._patience = p2p, manifest.swarm_id, manifest.rounds.chunk_seconds
        self._runners: dict[bytes, AllReduce] = {}
        self._more = asyncio.Event()  # set at the next group; another one takes its place then

    async def start(self) -> None:
        """Begin to answer."""
        await self.add_p2p_handlers(self._p2p, namespace=self._prefix)

    @contextmanager
    def reducing(self, runner: AllReduce) -> Iterator[None]:
        """Parts for the group of ``runner`` go to it."""
        self._runners[runner.group_id] = runner
        more, self._more = self._more, asyncio.Event()
        more.set()
        try:
            yield
        finally:
            del self._runners[runner.group_id]

    async def rpc_aggregate_part(
        self, stream: AsyncIterator[averaging_pb2.AveragingData], context: P2PContext
    ) -> AsyncIterator[averaging_pb2.AveragingData]:
        """The averages of the parts that a member sends."""
        first = await anext(stream)
        runner = await self._runner_of(first.group_id)
        if runner is None:
            yield averaging_pb2.AveragingData(code=averaging_pb2.BAD_GROUP_ID)
            return
        sender = str(context.remote_id)
        async with aclosing(runner.reduce_from(sender, achain(as_aiter(first), stream))) as averages:
            async for message in averages:
                yield message

    async def ask(self, peer: str, parts: Messages) -> Messages:
        """Send a member our parts; the averages that it returns."""
        stub = self.get_stub(self._p2p, PeerID.from_base58(peer), namespace=self._prefix)
        averages: Messages = await stub.rpc_aggregate_part(parts)
        return averages

    async def _runner_of(self, group_id: bytes) -> AllReduce | None:
        """A member may hear of its group before we do, so there is a little time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while group_id not in self._runners:
                    await self._more.wait()
        return self._runners.get(group_id)


class Reduce:
    """See `RoundExchange`."""

    def __init__(self, context: RoundContext) -> None:
        self.rejected: Counter[str] = Counter()
        self._context, self._manifest, self._me = context, context.manifest, context.me
        self._reducers = Reducers(context.p2p, context.manifest)

    async def open(self) -> None:
        """See `RoundExchange`."""
        if self._context.callable:
            await self._reducers.start()

    async def prepare(self, offer: Offer) -> Statement:
        """See `RoundExchange`."""
        return self._context.sign_statement(Claim(offer.round, offer.state, offer.tokens, self._me))

    async def alone(self, offer: Offer, statement: Statement) -> ExchangeOutcome:
        """See `RoundExchange`."""
        tokens = statement.claim.tokens
        encoded = await asyncio.to_thread(
            average_alone, offer.contribution, self._context.numel, self._manifest.encoding, offer.take
        )
        evidence = await self._evidence(encoded, tokens, offer, (self._me,))
        return ExchangeOutcome(tokens, contributors=(self._me,), evidence=evidence)

    async def average(self, roll: Roll, offer: Offer) -> ExchangeOutcome:
        """See `RoundExchange`. When a share does not arrive in time, the round fails."""
        callable = [each.maker for each in roll.statements if each.callable]
        group = Group(roll.id, self._me, [each.maker for each in roll.drawn], callable)
        given = Given(offer.contribution, self._context.numel, offer.tokens, offer.round, offer.take)
        download = self._context.p2p.bandwidth.download
        run = AllReduce(self._manifest, group, given, self._reducers.ask, download)
        reason: Failure | None = Failure.TIMEOUT
        with self._reducers.reducing(run), suppress(TimeoutError):
            async with asyncio.timeout(self._manifest.rounds.allreduce_seconds):
                await run.run()
                reason = Failure.PEER_LOST if run.missing else None
        if run.rejected:
            logger.warning("contributions left out of the average: %s", dict(run.rejected))
        self.rejected += run.rejected
        mates, members = roll.mates_of(self._me), tuple(roll.members)
        if reason:
            return ExchangeOutcome(roll.tokens, mates, reason, lost=run.lost)
        evidence = await self._evidence(run.encoded, run.tokens, offer, members)
        return ExchangeOutcome(
            run.tokens, mates, lost=run.lost, contributors=members, roll=roll, evidence=evidence
        )

    async def compare(self, roll: Roll, others: Collection[str]) -> Sequence[Proof]:
        """See `RoundExchange`: reducers sign nothing."""
        del roll, others
        return ()

    async def _evidence(
        self, encoded: memoryview, tokens: int, offer: Offer, members: tuple[str, ...]
    ) -> Evidence:
        """The average as a blob: equal bytes on all peers."""
        form = average_form(self._manifest, self._context.numel)
        blob = await asyncio.to_thread(form.build, Claim(offer.round, offer.state, tokens), encoded)
        return Evidence((Input(digest=blob.digest, tokens=tokens),), members, {blob.digest: blob})
