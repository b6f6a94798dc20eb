"""Leaves one state after another with others: a session for each, and answers about the last ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.errors import FileError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import CallError, Callers, Refusal, rpc
from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.desk import Desk
from dupt_swarm.network.rounds.evidence import Evidence, Expose
from dupt_swarm.network.rounds.exchange import RoundExchange
from dupt_swarm.network.rounds.messages import (
    ANSWER_BYTES_MAX,
    REPORT_BYTES_MAX,
    AnswerMessage,
    ReportMessage,
)
from dupt_swarm.network.rounds.pledges import Pledges
from dupt_swarm.network.rounds.reports import Pace
from dupt_swarm.network.rounds.round import Roll, Round
from dupt_swarm.network.rounds.session import Ended, Others, Session
from dupt_swarm.network.rounds.voice import Voice
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.signed_words import LinkRecord, Words
from dupt_swarm.replica.state import ReplicaState

DESKS_KEPT = 3  # members that are late hear how states were left
MATES_MAX = 256
# After a rejection newcomers, who cost nothing, could do harm again: so many rounds are the electorate's.
WARY_ROUNDS = 8
# Of the time limit of an exchange: then nobody is waited for any more, and the rest is for deciding.
COLLECTING_RATIO = 0.5
LEAVE_SECONDS = 2.0


@dataclass(frozen=True)
class Context:
    """What a peer decides with.

    Attributes:
        manifest: of the swarm.
        p2p: the daemon.
        key: the peer's identity.
        others: who is there.
        exchange: how contributions come here.
        pledges: what it has signed, on disk.
        callable: whether others can call this peer.
    """

    manifest: Manifest
    p2p: GuardedP2P
    key: Ed25519PrivateKey
    others: Others
    exchange: RoundExchange
    pledges: Pledges
    callable: bool = True

    @property
    def me(self) -> str:
        """The own peer id."""
        return str(self.p2p.peer_id)

    @property
    def pace(self) -> Pace:
        """How long members wait for one another."""
        rounds = self.manifest.rounds
        exchange = COLLECTING_RATIO * rounds.allreduce_seconds
        return Pace(gather=rounds.matchmaking_seconds, exchange=exchange, silence=rounds.chunk_seconds)


logger = logging.getLogger(__name__)


async def accept(_: ReplicaState) -> bool:
    """Accept whatever a round leads to."""
    return True


class Deciding:
    """Leaves one state after another, by a session for each, and answers about the last ones.

    Attributes:
        present: that of the state at which it is; None: it takes no part.
        accepts: judges what was computed.
        on_left: hears how each state was left.
        on_roll: hears with which peers each is being left; see `Session`.
        link_from: our own link that leaves a state, by the digest of that.
    """

    def __init__(
        self,
        context: Context,
        begin: Callable[[ReplicaState], NextState],
        link_from: Callable[[str], Link | None] = lambda _: None,
        expose: Expose = lambda *_: None,
    ) -> None:
        """Nothing happens until `reach`.

        Args:
            context: to decide with.
            begin: begins the state that follows from one.
            link_from: see above.
            expose: see `Evidence`.
        """
        self.present: Session | None = None
        self.accepts: Callable[[ReplicaState], Awaitable[bool]] = accept
        self.on_left: Callable[[Session, Ended], None] = lambda *_: None
        self.on_roll: Callable[[Roll], None] = lambda _: None
        self._context, self._begin, self.link_from, self._expose = context, begin, link_from, expose
        self._words = Words(context.manifest.swarm_id)
        self._desks: OrderedDict[str, Desk] = OrderedDict()
        self._running: asyncio.Task[None] | None = None
        self._wary_until = 0  # this round
        self._missed = ""  # a state that was left by what we could not compute

    async def open(self) -> None:
        """Begin to answer others."""
        await self._context.exchange.open()
        if self._context.callable:
            await self._context.p2p.serve(self, self._context.others.admits)

    def reach(self, state: ReplicaState) -> Session:
        """This peer is at ``state`` now, and takes part in leaving it."""
        if self.present is not None and self.present.state == state.digest:
            return self.present
        self.rest()
        context, digest = self._context, state.digest
        voice = Voice(
            context.me,
            partial(self._words.sign, context.key),
            partial(context.pledges.keep, digest),
            context.callable,
        )
        electorate = state.electorate
        ballots = Ballots(
            voice,
            digest,
            electorate,
            context.pace,
            time.monotonic(),
            context.pledges.of(digest, self._words),
            lasting=context.exchange.lasting,
            wary=state.round < self._wary_until,
        )
        desk = self._desks[digest] = Desk(
            Round(ballots),
            self._words,
            Evidence(electorate.former, self._expose),
            context.manifest.weight_limit(state.round),
        )
        while len(self._desks) > DESKS_KEPT:
            self._desks.popitem(last=False)
        context.p2p.limits.mates = electorate.members
        self.present = Session(
            desk, state, context.others, context.exchange, self._begin, lambda after: self.accepts(after)
        )
        self.present.on_roll = self.on_roll
        self._running = asyncio.create_task(self._run(self.present))
        return self.present

    async def _run(self, session: Session) -> None:
        """Run a session to its end, and tell what came of it; one that failed may be begun again."""
        try:
            ended = await session.run(self.ask)
            self.on_left(session, ended)
            if ended.computed is None:  # maybe what is missing comes
                self._missed = session.state
                self._forget(session)
            session.ended.set_result(ended)
        except asyncio.CancelledError:
            session.ended.cancel()
            raise
        except Exception as error:
            logger.exception("the round failed")
            self._forget(session)
            session.ended.set_exception(error)
            session.ended.exception()  # maybe nobody waits

    def _forget(self, session: Session) -> None:
        """Have it begun again, if nothing else has been begun."""
        if self.present is session:
            self.present = None

    @property
    def is_in_ballots(self) -> bool:
        """Whether our word counts on the present state, and we have not given up deciding with a quorum."""
        session = self.present
        return session is not None and session.round.remnant is None and session.round.ballots.decides

    @property
    def next_state(self) -> str:
        """Digest of the state to which we are on our way from the present one; empty if we are not."""
        session = self._under_way
        link = None if session is None else session.round.link
        return "" if link is None else link.after

    def follow(self, link: Link) -> bool:
        """Go on by ``link``, which was verified, with what we hold of its round already; whether we do so."""
        session = self._under_way
        if session is None or session.state != link.state or not self._context.exchange.lasting:
            return False
        session.follow(link)
        return True

    def compare(self, link: Link) -> None:
        """Expose who has signed for ``link`` and for our own link from that state, or for what was said here.

        In ballots there is no link of ours yet; of a state that we left long ago there is nothing else.
        """
        desk = self.desk_of(link.state)
        if desk is not None:
            desk.evidence.note(link.words)
        ours = self.link_from(link.state)
        if ours is not None and ours.after != link.after:
            evidence = Evidence({*ours.makers, *ours.left}, self._expose)
            evidence.note([*ours.words, *link.words])

    @property
    def _under_way(self) -> Session | None:
        """The session of the present state, unless what that was left by could not be computed here."""
        session = self.present
        return None if session is None or session.state == self._missed else session

    def desk_of(self, state: str) -> Desk | None:
        """The desk of a state that we have left lately, or are leaving."""
        return self._desks.get(state)

    def rest(self) -> None:
        """Take no part until the next state is reached; who asks gets answers all the same."""
        self.present = None
        if self._running is not None:
            self._running.cancel()

    async def end(self, contribution: bytes | memoryview, tokens: int) -> Ended | None:
        """Bring a contribution to the present state, and wait until that is left.

        It is cancelled if the next state comes in another way.

        Returns:
            None: what was proposed is rejected, so that another contribution should be brought.

        Raises:
            ValueError: the contribution does not have the size that it should.
        """
        session = self.present
        if session is None:  # that came between the call and this
            raise asyncio.CancelledError
        before = session.before
        claim = Claim(before.round, before.digest, tokens, self._context.me)
        session.bring(await self._context.exchange.prepare(contribution, claim))
        outcomes: list[asyncio.Future[Any]] = [session.ended, session.rejected]
        await asyncio.wait(outcomes, return_when=asyncio.FIRST_COMPLETED)
        if session.ended.done():
            return session.ended.result()
        self._wary_until = before.round + WARY_ROUNDS
        return None

    async def leave(self) -> None:
        """Say the last word on the present state to those who decide, and take no part any more."""
        session = self.present
        if session is None:
            return
        self.rest()
        told = sorted(session.round.ballots.electorate.members - {self._context.me})
        with suppress(TimeoutError, FileError):  # on a full disk it goes without a word
            message = ReportMessage.of(session.round.leave())
            async with asyncio.timeout(LEAVE_SECONDS):
                asking = (self.ask(peer, message) for peer in told)
                await asyncio.gather(*asking, return_exceptions=True)

    async def ask(self, peer: str, message: ReportMessage) -> AnswerMessage:
        """Report to a peer.

        Raises:
            CallError: it does not answer, or nonsense.
        """
        return await self._context.p2p.call(peer, Deciding.rpc_report, message)

    @rpc(
        *(ReportMessage, AnswerMessage),
        longest=(REPORT_BYTES_MAX, ANSWER_BYTES_MAX),
        callers=Callers.MEMBERS,
        urgent=True,
    )
    async def rpc_report(self, request: ReportMessage, caller: str) -> AnswerMessage:
        """The answer to a member's report."""
        desk = self.desk_of(request.state)
        if desk is not None:
            limits = self._context.p2p.limits
            if len(limits.mates) < MATES_MAX:
                limits.mates = {*limits.mates, caller}  # what they fetch goes first
            return await desk.answer(caller, request)
        link = self.link_from(request.state)
        if link is None:
            raise CallError(Refusal.NOT_HELD, "this peer is at another state")
        return AnswerMessage(ballot=0, link=LinkRecord.of(link))
