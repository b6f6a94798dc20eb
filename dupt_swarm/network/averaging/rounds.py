"""The end of a round on this node: average, outer step, votes; it returns whatever goes wrong."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.exchange import (
    Evidence,
    ExchangeOutcome,
    Offer,
    RoundContext,
    RoundExchange,
)
from dupt_swarm.network.averaging.pledge import Proof, Vote
from dupt_swarm.network.averaging.polls import PollResult, Polls
from dupt_swarm.network.averaging.reduce import Reduce
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.averaging.roll_call import Companions, RollCall
from dupt_swarm.network.averaging.share import Share
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.replaying import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.messages import GroupFormed, Traffic
from dupt_swarm.node.reasons import COUNT_MAX, FAILURES, REJECTIONS, Failure, in_order
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.log_entry import LogEntry
from dupt_swarm.replica.next_state import NextState, Take
from dupt_swarm.replica.signed import as_text
from dupt_swarm.replica.state import ReplicaState

logger = logging.getLogger(__name__)

EXCHANGES: dict[str, Callable[[RoundContext], RoundExchange]] = {"reduce": Reduce, "share": Share}


class SwarmAverager:
    """Ends rounds with others.

    Attributes:
        searching: whether it is looking for the group of a round now.
    """

    def __init__(
        self,
        context: RoundContext,
        companions: Companions,
        tell: Callable[[GroupFormed], None] = lambda _: None,
        expose: Callable[[Sequence[Proof]], None] = lambda _: None,
    ) -> None:
        """``tell`` is called when a group is there, before anything is sent; for ``expose`` see `Polls`."""
        self._me, self._tell, self._expose = context.me, tell, expose
        self._limits = context.p2p.limits
        self._exchange = EXCHANGES[context.manifest.rounds.exchange](context)
        self._companions, self._rolls = companions, RollCall(context, companions)
        self._polls = Polls(context, lambda: companions.electorate, expose)
        self.searching = False

    @property
    def rejected(self) -> Counter[str]:
        """Contributions left out here, by reason."""
        return self._exchange.rejected

    async def open(self) -> None:
        """Begin to answer other peers."""
        await self._exchange.open()
        await self._rolls.open()
        await self._polls.open()

    async def average(self, offer: Offer, companions: Collection[str]) -> ExchangeOutcome:
        """Meet the peers of this round, which started from an equal state, and average with them.

        Args:
            offer: our contribution; no bytes: it was not finite.
            companions: ids of the other live oracles at this state: the group is there as soon as all have
                come, and at the end of the matchmaking time with those who have. None: there is nobody else.
        """
        if not offer.contribution:
            return ExchangeOutcome(reason=Failure.NOT_FINITE)
        statement = await self._exchange.prepare(offer)
        if not companions:
            average = await self._average_alone(offer, statement)
        else:
            roll = await self._assemble(statement, companions)
            if roll is None:
                return ExchangeOutcome(reason=Failure.NO_GROUP)
            average = await self._average_in(roll, offer)
        return average

    async def certify(
        self, offer: Offer, average: ExchangeOutcome, after: str, *, accepted: bool = True
    ) -> PollResult:
        """Vote for the state ``after``, which follows from ``average``, or against it if not ``accepted``.

        Without a quorum the round did not happen; if others come to another state, who has brought that about
        is exposed, where it can be proved.
        """
        if average.roll is None:
            result = PollResult(self._polls.alone(offer.round, offer.state, after))
        else:
            result = await self._polls.certify(average.roll, after, accepted=accepted)
        if result.votes:
            self._rolls.ended((offer.round, offer.state))
        elif average.roll is not None and result.others:
            self._expose(await self._exchange.compare(average.roll, result.others))
        return result

    async def _average_alone(self, offer: Offer, statement: Statement) -> ExchangeOutcome:
        if not self._companions.electorate.is_quorum([self._me], [self._me]):
            return ExchangeOutcome(reason=Failure.NO_QUORUM)
        return await self._exchange.alone(offer, statement)

    async def _assemble(self, statement: Statement, companions: Collection[str]) -> Roll | None:
        self.searching = True
        try:
            return await self._rolls.assemble(statement, companions)
        finally:
            self.searching = False

    async def _average_in(self, roll: Roll, offer: Offer) -> ExchangeOutcome:
        self._limits.mates = frozenset(roll.members)
        self._polls.begin(roll)
        self._tell(GroupFormed(roll.tokens, roll.mates_of(self._me)))
        average = await self._exchange.average(roll, offer)
        if average.reason:
            await self._polls.abstain(roll)
        return average

    async def abstain(self, average: ExchangeOutcome) -> None:
        """Tell that no state follows from ``average``."""
        if average.roll is not None:
            await self._polls.abstain(average.roll)


# Reasons for which a round fails when the voters do not come together.
WITHOUT_QUORUM = (Failure.NO_GROUP, Failure.NO_QUORUM)

Accepts = Callable[[ReplicaState], Awaitable[bool]]


async def accept(_: ReplicaState) -> bool:
    """Whatever a round leads to."""
    return True


class Rounds:
    """Ends rounds, one at a time, and counts their outcomes.

    Attributes:
        under_way: whether one is being ended now.
    """

    def __init__(
        self,
        manifest: Manifest,
        store: StateStore,
        member: Membership,
        averager: SwarmAverager,
        log: RoundLog,
        traffic: Callable[[], Traffic],
    ) -> None:
        """What ends well goes into ``log``; ``traffic`` reads the bytes exchanged so far."""
        self._manifest, self._store, self._member = manifest, store, member
        self._averager, self._log = averager, log
        self._ending: asyncio.Task[tuple[ExchangeOutcome, ReplicaState | None]] | None = None
        self._overtaken = self._cancelled = False
        self._failures: Counter[str] = Counter()
        self._averaged, self._last = 0, RecordUpdate()
        self._traffic, self._last_end = traffic, (time.monotonic(), traffic())
        self.under_way = False

    def begin(self) -> None:
        """A round is to be ended: from now on that can be given up."""
        self._cancelled = False

    async def end(
        self,
        contribution: bytes | memoryview,
        tokens: int,
        companions: tuple[str, ...],
        accepts: Accepts = accept,
    ) -> tuple[ReplicaState | None, ExchangeOutcome, float]:
        """End the round that began with the store's state.

        Args:
            contribution: encoded; empty: it was not finite, and this round fails.
            tokens: what it stands for.
            companions: ids of the other live oracles; none: this one steps by itself.
            accepts: whether to vote for the state that a group comes to.

        Returns:
            The state that follows (None if the round failed), the average, and how many seconds it took.
        """
        if self._cancelled:
            return None, ExchangeOutcome(reason=Failure.CANCELLED), 0.0
        started, state = time.monotonic(), None
        outcome = ExchangeOutcome(reason=Failure.NETWORK)
        self.under_way, self._overtaken = True, False
        try:
            self._ending = asyncio.create_task(self._end(contribution, tokens, companions, accepts))
            outcome, state = await self._ending
        except asyncio.CancelledError:
            outcome = ExchangeOutcome(reason=Failure.BEHIND if self._overtaken else Failure.CANCELLED)
        except Exception:
            # libp2p's daemon, hivemind, a hostile peer: whatever failed, training goes on.
            logger.exception("the round failed")
        finally:
            self.under_way, self._ending = False, None
        seconds = time.monotonic() - started
        if outcome.reason is not Failure.BEHIND:  # else it is a round of the others'
            self._count(outcome, seconds, succeeded=state is not None)
        return state, outcome, seconds

    def cancel(self) -> None:
        """Give up the round that is being ended, if there is one."""
        self._cancelled = True
        if self._ending is not None:
            self._ending.cancel()

    def overtaken(self) -> None:
        """The others have ended this round without us: look no longer for a group, if there is none yet."""
        if self._averager.searching:
            self._overtaken = True
            self.cancel()

    @property
    def told(self) -> RecordUpdate:
        """What the own record says of the rounds so far."""
        return self._last | RecordUpdate(
            averaged_rounds=self._averaged,
            failures=in_order(self._failures, FAILURES),
            rejections=in_order(self._averager.rejected, REJECTIONS),
        )

    def _count(self, outcome: ExchangeOutcome, seconds: float, *, succeeded: bool) -> None:
        """A round has ended here after ``seconds`` of averaging."""
        if not succeeded:
            self._failures[outcome.reason or Failure.OTHER] += 1
            return
        (before, carried), self._last_end = self._last_end, (time.monotonic(), self._traffic())
        ended, carries = self._last_end
        self._averaged = min(self._averaged + 1, COUNT_MAX)
        self._last = RecordUpdate(
            group_size=1 + len(outcome.mates),
            averaging_seconds=seconds,
            round_seconds=ended - before,
            round_sent_bytes=carries.sent - carried.sent,
            round_received_bytes=carries.received - carried.received,
        )

    def _note_attendance(self, expected: set[str], average: ExchangeOutcome) -> None:
        """Of an exchange that failed it is not known who brought what, but for those who brought nothing."""
        lost, mates = set(average.lost), set(average.mates)
        came = set[str]() if average.reason else mates - lost
        self._member.attendance.ended((expected - mates) | lost | came, came)

    async def _end(
        self,
        contribution: bytes | memoryview,
        tokens: int,
        companions: tuple[str, ...],
        accepts: Accepts,
    ) -> tuple[ExchangeOutcome, ReplicaState | None]:
        following = self._store.following()
        offer = self._offer(contribution, tokens, _unless_gone(following))
        expected = tuple(self._member.expected(companions))
        average, state = await self._averager.average(offer, expected), None
        # A missing peer may be dead: the next rounds do not wait for it until it publishes a new record.
        absent = set(expected).difference(average.mates) if average.mates else set()
        self._member.suspect((*average.lost, *absent))
        outcome = average  # unless what follows fails
        try:
            if not average.reason:
                outcome, state = await self._finish(offer, average, following, accepts)
        finally:
            if average.mates or average.reason is Failure.NO_GROUP:
                self._note_attendance(set(expected), average)
        self._member.note_attempt(
            found_quorum=outcome.reason not in WITHOUT_QUORUM, rejected=outcome.reason is Failure.REJECTED
        )
        return outcome, state

    async def _finish(
        self, offer: Offer, outcome: ExchangeOutcome, following: NextState, accepts: Accepts
    ) -> tuple[ExchangeOutcome, ReplicaState | None]:
        """The outer step with a complete average, and the votes on it.

        Nothing but a state with a quorum discards what the trainer did.
        """
        assert outcome.evidence is not None
        try:
            after = following.finish(outcome.tokens, outcome.contributors)
        except OverflowError:
            await self._averager.abstain(outcome)
            return replace(outcome, reason=Failure.OUTER_OVERFLOW, evidence=None), None
        # Alone there is nobody who would do harm.
        accepted = outcome.roll is None or await accepts(after)
        result = await self._averager.certify(offer, outcome, after.digest, accepted=accepted)
        if not result.votes:
            reason = Failure.REJECTED if result.rejected else Failure.NO_QUORUM
            return replace(outcome, reason=reason, evidence=None), None
        self._note(outcome.evidence, result.votes, following.before, after)
        return outcome, after

    def _note(
        self, evidence: Evidence, votes: tuple[Vote, ...], before: ReplicaState, after: ReplicaState
    ) -> None:
        entry = LogEntry(
            round=after.round,
            before=before.digest,
            after=after.digest,
            exchange=self._manifest.rounds.exchange,
            members=evidence.members,
            inputs=evidence.inputs,
            votes=tuple(as_text(vote.data) for vote in votes),
        )
        self._log.add(entry, evidence.blobs, before)

    def _offer(self, contribution: bytes | memoryview, tokens: int, take: Take) -> Offer:
        state = self._store.current
        weight = max(1, int(min(tokens, self._manifest.weight_limit(state.round))))
        return Offer(contribution, weight, state.round, state.digest, state.voters, take)


def _unless_gone(following: NextState) -> Take:
    """`following.take`, which does not keep it: a failed exchange may linger in a traceback."""
    method = weakref.WeakMethod(following.take)

    def take(number: int, average: Tensor) -> None:
        if (still_there := method()) is not None:
            still_there(number, average)

    return take
