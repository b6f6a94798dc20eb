"""The exchange `share`: everybody gets all contributions, and computes the average itself.

Contributions are blobs. Each member publishes its own, and fetches the others' from whoever has them, the
rarest first; which of them count is agreed by one list (`agreement`), and the rest is arithmetic
(`replica.replay`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import asynccontextmanager

import numpy as np

from dupt_swarm.errors import NodeError
from dupt_swarm.network.averaging.exchange import Evidence, ExchangeOutcome, Offer, RoundContext
from dupt_swarm.network.averaging.group import SharingGroup
from dupt_swarm.network.averaging.pledge import Proof
from dupt_swarm.network.averaging.reports import (
    ANSWER_BYTES_MAX,
    REPORT_BYTES_MAX,
    AnswerMessage,
    ReportMessage,
)
from dupt_swarm.network.averaging.roll import LastGroups, Roll, Statement
from dupt_swarm.network.averaging.session import Session
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import Callers, rpc
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.reasons import Failure
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.replica.codec import check_size
from dupt_swarm.replica.contribution import Claim, Form, Measure, measure
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.replay import average_of_shared, contribution_form, with_standings
from dupt_swarm.replica.signed import as_text

AT_ONCE = 3
RETRY_SECONDS = 0.25
FETCH_SECONDS = 600.0  # the round ends long before

SHELF_ROUNDS = 2  # a member that is late may still ask for those of the round before

logger = logging.getLogger(__name__)


class RoundShelf:
    """The contributions of the last rounds, by digest: what the members of a group give one another."""

    def __init__(self) -> None:
        self._rounds: deque[dict[str, Blob]] = deque(maxlen=SHELF_ROUNDS)

    def begin(self, blob: Blob) -> None:
        """Begin a round with our own contribution."""
        self._rounds.appendleft({blob.digest: blob})

    def add(self, blob: Blob) -> None:
        """Another one of this round has arrived."""
        self._rounds[0][blob.digest] = blob

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is here."""
        return next((blobs[digest] for blobs in self._rounds if digest in blobs), None)

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        return [blob for blobs in self._rounds for blob in blobs.values()]


class Collection:
    """What one member fetches in one round; each is measured as soon as it is here."""

    def __init__(self, session: Session, form: Form, blobs: Exchange, shelf: RoundShelf) -> None:
        """What arrives is put on the ``shelf``, from which ``blobs`` serves it to others."""
        self._session, self._form, self._blobs, self._shelf = session, form, blobs, shelf
        self._under_way: set[int] = set()
        self._hopeless: set[int] = set()
        self._failures: Counter[int] = Counter()
        self._arrived = asyncio.Event()
        self._measuring: dict[int, asyncio.Task[Measure]] = {}
        self._hold(session.agreement.me)

    async def run(self) -> None:
        """Fetch everything that there is, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._fetch_forever())

    async def complete(self, places: Sequence[int]) -> list[Measure]:
        """Wait until the contributions of ``places`` are here, and measured."""
        while not set(places) <= self._session.agreement.held:
            self._arrived.clear()
            await self._arrived.wait()
        return await asyncio.gather(*(self._measuring[place] for place in places))

    async def _fetch_forever(self) -> None:
        while True:
            place = self._rarest()
            if place is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._under_way.add(place)
            try:
                await self._fetch(place)
                continue
            except ValueError as error:
                # It has another form than its maker has signed for, so no honest member will hold it.
                logger.warning("a contribution is unusable: %s", error)
                self._hopeless.add(place)
            except NodeError as error:  # the next time there may be other donors
                self._failures[place] += 1
                logger.debug("a contribution could not be fetched: %r", error)
            finally:
                self._under_way.discard(place)
            await asyncio.sleep(RETRY_SECONDS)

    def _rarest(self) -> int | None:
        """The place of a contribution to fetch now: one that few members hold, so that they soon are more.

        Those of voters come first, and what could not be had last: who has nothing delays nobody else.
        """
        agreement = self._session.agreement
        wanted = set(range(agreement.size)) - agreement.held - self._under_way - self._hopeless
        if agreement.decision is not None:
            wanted &= set(agreement.decision.choice)

        def key(place: int) -> tuple[bool, int, bool, int, float]:
            stranger, proposed = place not in agreement.electors, place in (agreement.proposal or ())
            return (
                *(stranger, self._failures[place], not proposed),
                *(len(agreement.holders[place]), random.random()),
            )

        return min(wanted, key=key, default=None)

    async def _fetch(self, place: int) -> None:
        statement = self._session.group.statements[place]
        index = await self._blobs.fetch_index(statement.digest, await self._donors(place))
        self._form.check(index, statement.claim)
        blob = await self._blobs.fetch(Assembly(index), lambda: self._donors(place), FETCH_SECONDS)
        self._shelf.add(blob)
        self._hold(place)

    def _hold(self, place: int) -> None:
        blob = self._shelf.get(self._session.group.digests[place])
        assert blob is not None
        self._measuring[place] = asyncio.create_task(asyncio.to_thread(measure, blob, self._form))
        self._session.hold(place)
        self._arrived.set()

    async def _donors(self, place: int) -> list[str]:
        agreement, members = self._session.agreement, self._session.group.members
        places = {place, *agreement.holders[place]} - {agreement.me}
        return [members[each] for each in sorted(places)]


COMPARED_MAX = 4  # members that are asked for their lists, at once


class Agreements:
    """Lets the members of our groups ask where their agreement stands."""

    def __init__(self, p2p: GuardedP2P) -> None:
        self._p2p = p2p
        self._sessions = LastGroups[Session]()

    async def start(self) -> None:
        """Begin to answer."""
        await self._p2p.serve(self, self._sessions.has_member)

    def add(self, session: Session) -> None:
        """Answer to the members of this group from now on."""
        self._sessions.keep(session.group.group_id, session)

    def of(self, roll: Roll) -> Session | None:
        """That of the group of ``roll``, while it is kept."""
        return self._sessions.get(roll.id)

    @rpc(
        *(ReportMessage, AnswerMessage),
        longest=(REPORT_BYTES_MAX, ANSWER_BYTES_MAX),
        callers=Callers.MEMBERS,
        urgent=True,
    )
    async def rpc_agree(self, request: ReportMessage, caller: str) -> AnswerMessage:
        """The answer to a member's report."""
        return await self._sessions.asked_of(request.group, caller).answer(caller, request)

    async def ask(self, peer: str, message: ReportMessage) -> AnswerMessage:
        """Report to a peer.

        Raises:
            CallError: it does not answer, or nonsense.
        """
        return await self._p2p.call(peer, Agreements.rpc_agree, message)


class Share:
    """See `RoundExchange`."""

    def __init__(self, context: RoundContext) -> None:
        assert context.blobs is not None
        self.rejected: Counter[str] = Counter()
        self._context, self._manifest, self._blobs = context, context.manifest, context.blobs
        self._me = context.me
        self._form = contribution_form(context.manifest, context.numel)
        self._agreements = Agreements(context.p2p)
        self._shelf = RoundShelf()

    async def open(self) -> None:
        """See `RoundExchange`."""
        self._blobs.serve_from(self._shelf)
        await self._agreements.start()

    async def prepare(self, offer: Offer) -> Statement:
        """See `RoundExchange`."""
        check_size(self._form.codec, offer.contribution, self._form.numel)
        claim = Claim(offer.round, offer.state, offer.tokens, self._me)

        def build() -> tuple[Blob, Statement]:
            # A copy: the trainer writes the next one where this one is. (NumPy's lets the event loop run.)
            blob = self._form.build(claim, np.frombuffer(offer.contribution, np.uint8).copy().data)
            return blob, self._context.sign_statement(claim, blob.digest)

        blob, statement = await asyncio.to_thread(build)
        self._shelf.begin(blob)
        return statement

    async def alone(self, offer: Offer, statement: Statement) -> ExchangeOutcome:
        """See `RoundExchange`."""
        blob = self._shelf.get(statement.digest)
        assert blob is not None
        measured = await asyncio.to_thread(measure, blob, self._form)
        return await self._mean([statement], [measured], offer)

    async def average(self, roll: Roll, offer: Offer) -> ExchangeOutcome:
        """See `RoundExchange`."""
        rounds = self._manifest.rounds
        sharing = SharingGroup(self._manifest.swarm_id, roll, offer.voters)
        session = Session(sharing, self._me, self._context.key, rounds)
        self._agreements.add(session)
        try:
            async with asyncio.timeout(rounds.allreduce_seconds):
                async with self._collecting(session) as collection:
                    decision = await session.decide(self._agreements.ask)
                    if decision is None:
                        return self._failed(sharing, session, Failure.PEER_LOST)
                    measures = await collection.complete(decision.choice)
                chosen = [sharing.statements[place] for place in decision.choice]
                return await self._mean(chosen, measures, offer, roll)
        except TimeoutError:
            return self._failed(sharing, session, Failure.TIMEOUT)

    async def compare(self, roll: Roll, others: Container[str]) -> Sequence[Proof]:
        """See `RoundExchange`: whoever has computed another state has seen another list."""
        session = self._agreements.of(roll)
        if session is None:
            return ()
        asked = [each.maker for each in roll.drawn if each.callable and each.maker in others][:COMPARED_MAX]
        found = await asyncio.gather(*(session.compare(peer, self._agreements.ask) for peer in asked))
        return list({proof.offender: proof for proofs in found for proof in proofs}.values())

    @asynccontextmanager
    async def _collecting(self, session: Session) -> AsyncIterator[Collection]:
        collection = Collection(session, self._form, self._blobs, self._shelf)
        work = asyncio.create_task(collection.run())
        try:
            yield collection
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _mean(
        self, chosen: list[Statement], measures: list[Measure], offer: Offer, roll: Roll | None = None
    ) -> ExchangeOutcome:
        members = tuple(roll.members) if roll is not None else (self._me,)
        blobs = {each.digest: blob for each in chosen if (blob := self._shelf.get(each.digest))}
        contributions = [
            (blobs[each.digest], each.claim.tokens, found)
            for each, found in zip(chosen, measures, strict=True)
        ]
        counted = await asyncio.to_thread(
            average_of_shared,
            self._manifest,
            with_standings(contributions, [each.maker for each in chosen], offer.voters, offer.state),
            self._form,
            offer.take,
        )
        self.rejected += counted.rejected
        inputs = tuple(
            Input(
                digest=each.digest,
                tokens=each.claim.tokens,
                maker=each.maker,
                statement=as_text(each.data),
            )
            for each in chosen
        )
        makers = {each.maker for each in chosen}
        return ExchangeOutcome(
            counted.tokens,
            mates=tuple(peer for peer in members if peer in makers - {self._me}),
            lost=tuple(peer for peer in members if peer not in makers | {self._me}),
            included=self._me in makers,
            contributors=tuple(chosen[place].maker for place in counted.places),
            roll=roll,
            evidence=Evidence(inputs, members, blobs),
        )

    def _failed(self, group: SharingGroup, session: Session, reason: Failure) -> ExchangeOutcome:
        """The round failed here; the others may have ended it, perhaps with our contribution."""
        decision = session.decision
        counted = range(len(group.members)) if decision is None else decision.choice
        lost = {group.members[place] for place in set(range(len(group.members))) - session.agreement.held}
        mine_counts = group.members.index(self._me) in counted
        tokens = sum(group.statements[place].claim.tokens for place in counted) if mine_counts else 0
        return ExchangeOutcome(tokens, group.roll.mates_of(self._me), reason, tuple(sorted(lost)))
