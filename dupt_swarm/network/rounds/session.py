"""One round on the clock and over the network: what is asked, answered, fetched, computed and judged.

A session drives a `Round`, which is pure: it tells the coordinator where we stand, again and again, answers
those who come to us, lets the exchange fetch what is missing, and computes what is proposed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from dupt_swarm.network.p2p.limits import Budget
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.rounds.desk import ANSWER_SECONDS, HELD_SECONDS, Desk
from dupt_swarm.network.rounds.exchange import Averaged, RoundExchange
from dupt_swarm.network.rounds.messages import AnswerMessage, ReportMessage
from dupt_swarm.network.rounds.reports import Report
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.network.task_group import TaskGroup
from dupt_swarm.replica.link import Brought, Choice, Link
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.state import ReplicaState

TICK_SECONDS = 0.25
RETRY_SECONDS = 0.1  # at first, when there was no answer
# How often the same is reported again: who answers at once whatever it hears must not keep us busy.
AGAIN_PER_SECOND, AGAIN_AT_ONCE = 4.0, 16.0

Ask = Callable[[str, ReportMessage], Awaitable[AnswerMessage]]
"""Reports to a peer, and gives its answer."""

logger = logging.getLogger(__name__)


class Others(Protocol):
    """What is known of the other peers, by their ids."""

    def here(self, state: str) -> Collection[str]:
        """Those that are at work at this state, and are waited for."""

    @property
    def coming(self) -> Collection[str]:
        """Those that are on their way to the state of this peer."""

    def present(self, state: str) -> Collection[str]:
        """The peers at this state, also those that nobody waits for."""

    @property
    def gone(self) -> Collection[str]:
        """Those where nobody listens any more."""

    @property
    def unable(self) -> Collection[str]:
        """Those that cannot be called; we may be one."""

    def admits(self, peer_id: str) -> bool:
        """Whether what it says is listened to."""


@dataclass(frozen=True)
class Computed:
    """A state that follows, and what it was made of."""

    after: ReplicaState
    averaged: Averaged


@dataclass(frozen=True)
class Ended:
    """How a state was left.

    Attributes:
        link: by which.
        computed: the state that follows; None: it could not be computed here.
    """

    link: Link
    computed: Computed | None


class Session:
    """Leaving one state, as this peer drives it.

    Attributes:
        desk: where others report.
        round: where that stands.
        before: the state.
        ended: how it was left, once that is known.
        companions: ids of the others that were there.
        rejected: done once a ballot has failed in which we have refused what was proposed.
        overflows: whether we have refused it because it leads to no finite state.
        on_roll: hears once with which peers we end the round, as far as is known then.
    """

    def __init__(
        self,
        desk: Desk,
        before: ReplicaState,
        others: Others,
        exchange: RoundExchange,
        begin: Callable[[ReplicaState], NextState],
        accepts: Callable[[ReplicaState], Awaitable[bool]],
    ) -> None:
        """Nothing happens until `run`.

        Args:
            desk: where others report.
            before: the state that is to be left.
            others: who is there.
            exchange: gets contributions here.
            begin: begins the state that follows from one.
            accepts: whether one that was computed is to be accepted.
        """
        self.desk, self.round, self.before = desk, desk.round, before
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self.rejected: asyncio.Future[None] = self._loop.create_future()
        self.companions: set[str] = set()
        self.overflows = False
        self._others, self._exchange, self._begin, self._accepts = others, exchange, begin, accepts
        self._refused_in: int | None = None  # the ballot
        self._computing: dict[str, asyncio.Task[Computed]] = {}  # by the choice, the last one
        self._reports: set[asyncio.Task[bool]] = set()
        self.on_roll: Callable[[Roll], None] = lambda _: None
        self._called = False
        self._refusing: set[str] = set()  # those that do not admit us
        desk.on_report = self._consider

    @property
    def state(self) -> str:
        """Digest of the state that is being left."""
        return self.before.digest

    async def run(self, ask: Ask) -> Ended:
        """Take part until the state is left and the next one is here, or cannot be computed."""
        try:
            async with TaskGroup() as work:
                reporting = work.create_task(self._report_forever(ask))
                fetching = work.create_task(self._exchange.run(self))
                judging = work.create_task(self._judge_forever())
                while (link := self.round.link) is None:
                    before = self.round.answer()
                    self._consider()
                    if self.round.answer() != before:
                        self.desk.tell()
                    await self.change(TICK_SECONDS)
                reporting.cancel()
                judging.cancel()
                computed = await self._computed_by(link)
                fetching.cancel()
            return Ended(link, computed)
        finally:
            self.desk.on_report = lambda: None
            self._computing.clear()
            for report in self._reports:
                report.cancel()
            await asyncio.gather(*self._reports, return_exceptions=True)

    def bring(self, brought: Brought) -> None:
        """Our contribution is ready: from now on we wait for others."""
        self.rejected = self._loop.create_future()
        self._refused_in, self.overflows = None, False
        self.round.bring(brought, time.monotonic())
        self._turn()

    def follow(self, link: Link) -> None:
        """The state was left by ``link``, which was verified: go on by it."""
        self.round.follow(link)
        self.desk.tell()

    # What an exchange sees; see `Floor`.

    @property
    def wanted(self) -> Collection[Brought]:
        """See `Floor`."""
        return self.round.stock.missing

    @property
    def roll(self) -> Roll | None:
        """See `Floor`."""
        return self.round.roll

    @property
    def proposed(self) -> Choice | None:
        """See `Floor`."""
        return self.round.proposed

    def donors(self, brought: Brought) -> list[str]:
        """See `Floor`."""
        me = self.round.ballots.me
        return [peer for peer in self.round.stock.holders(brought) if peer != me]

    def hold(self, digests: Collection[str]) -> None:
        """See `Floor`."""
        if not self.round.stock.held.issuperset(digests):
            self.round.stock.held.update(digests)
            self._turn()

    def give_up(self, roll: Roll) -> None:
        """See `Floor`."""
        self.round.give_up(roll, time.monotonic())
        self.desk.tell()

    async def change(self, seconds: float) -> None:
        """See `Floor`."""
        await self.desk.change(seconds)

    # What it does.

    def _turn(self) -> None:
        """Something has come: do what is due, and wake all who wait for it."""
        self._consider()
        self.desk.tell()

    def _consider(self) -> None:
        """Do what is due."""
        others, state = self._others, self.state
        self._look_for_rejection()
        here = others.here(state)
        self.companions |= {*others.present(state)}
        gone = self._refusing.union(others.gone)
        self.round.consider(time.monotonic(), here, others.coming, gone, others.unable)
        self._look_for_rejection()
        if not self._called and (roll := self.round.roll) is not None:
            self._called = True
            self.on_roll(roll)

    def _look_for_rejection(self) -> None:
        """What we have refused may be decided all the same, as long as its ballot lasts."""
        moved_on = self.round.remnant is not None or self.round.ballots.ballot != self._refused_in
        if self._refused_in is not None and moved_on and not self.rejected.done():
            self.rejected.set_result(None)
            self.round.retract()

    async def _report_forever(self, ask: Ask) -> None:
        """Report whenever there is something new to say, and the same again now and then."""
        retry, again = RETRY_SECONDS, Budget(time.monotonic())

        def may_repeat() -> bool:
            return again.take_if_left(1.0, AGAIN_PER_SECOND, AGAIN_AT_ONCE, time.monotonic())

        while True:
            coordinator = self.round.coordinator
            if not coordinator:
                await self.change(TICK_SECONDS)
                continue
            began, report = time.monotonic(), self.round.report()
            # What it answers to a report that is out of date by then is heard too.
            asking = asyncio.create_task(self._report_to(coordinator, report, ask))
            self._reports.add(asking)
            asking.add_done_callback(self._reports.discard)
            while not asking.done() and self._would_report(coordinator, report, began):
                await self.change(TICK_SECONDS)
            if not asking.done() or asking.result():
                retry = RETRY_SECONDS
                while self._would_report(coordinator, report, began) and not may_repeat():
                    await self.change(1 / AGAIN_PER_SECOND)
            elif self._would_report(coordinator, report, began):
                await asyncio.sleep(max(0.0, began + retry - time.monotonic()))
                retry = min(1.5 * retry, ANSWER_SECONDS)

    def _would_report(self, coordinator: str, report: Report, began: float) -> bool:
        """Whether what was reported at ``began`` still says all; of what comes here, not at once."""
        now = self.round.report()
        if self.round.stock.missing and time.monotonic() < began + HELD_SECONDS:
            now = replace(now, held=report.held)
        return self.round.coordinator == coordinator and now == report

    async def _report_to(self, peer: str, report: Report, ask: Ask) -> bool:
        """Tell one member where we stand, and hear what it answers; whether it did."""
        try:
            async with asyncio.timeout(self.round.ballots.pace.silence):
                message = await ask(peer, ReportMessage.of(report))
            desk = self.desk
            answer = await asyncio.to_thread(message.answer, desk.words, self.state, desk.weight_max)
            desk.evidence.note(answer.words)
            if answer.link is not None:
                answer.link.check(self.round.ballots.electorate)
        except (CallError, ValueError, TimeoutError) as error:
            logger.debug("%s does not answer: %r", peer, error)
            if isinstance(error, CallError) and error.refusal is Refusal.NOT_INVITED:
                self._refusing.add(peer)
            self._turn()
            return False
        self.round.hear(peer, answer, time.monotonic())
        self._turn()
        return True

    async def _judge_forever(self) -> None:
        """Compute and judge what is proposed, and say whether we accept it."""
        while True:
            choice = self.round.to_judge
            # A peer that has refused one looks at the next with new work.
            if choice is None or self.rejected.done():
                await self.change(TICK_SECONDS)
                continue
            ballots = self.round.ballots
            ballot, brought = ballots.ballot, ballots.brought
            after, dropped, accepts = await self._judge(choice)
            if not accepts and brought is ballots.brought:  # else there is new work meanwhile
                self._refused_in = ballot
            self.round.judge(choice, after, dropped, accepts=accepts)
            self._turn()
            if not accepts:
                await asyncio.sleep(RETRY_SECONDS)

    async def _judge(self, choice: Choice) -> tuple[str, tuple[str, ...], bool]:
        """The state to which it leads, whose contributions count for nothing, whether we accept it."""
        try:
            computed = await self._compute(choice)
        except (ValueError, OverflowError) as error:
            logger.warning("what was proposed leads to no state: %s", error)
            self.overflows = isinstance(error, OverflowError)
            self._computing.clear()
            return "", (), False
        dropped = tuple(each for each in choice.makers if each not in computed.averaged.counted)
        return computed.after.digest, dropped, await self._accepts(computed.after)

    async def _computed_by(self, link: Link) -> Computed | None:
        """The state to which ``link`` leads, if it can be computed here in time."""
        stock, pace = self.round.stock, self.round.ballots.pace
        if not stock.lasting and self.round.ballots.me not in link.choice.makers:
            return None  # what the others have averaged comes to nobody else
        stock.learn(link.choice.brought)
        for maker in link.makers:  # whoever has accepted it holds all that it needs
            held = stock.held_by.get(maker, frozenset()).union(each.digest for each in link.choice.brought)
            stock.note_held(maker, held)
        self.desk.tell()
        ends = time.monotonic() + pace.exchange
        while not stock.has(link.choice):
            if time.monotonic() > ends:
                logger.warning("the round was decided, but not all of its contributions came here in time")
                return None
            await self.change(TICK_SECONDS)
        try:
            computed = await self._compute(link.choice)
        except (ValueError, OverflowError) as error:
            logger.warning("what was decided leads to no state here: %s", error)
            return None
        if computed.after.digest != link.after:
            logger.warning("what was decided leads to another state here than to others")
            return None
        return computed

    async def _compute(self, choice: Choice) -> Computed:
        """The state to which ``choice`` leads; asked again, what was computed before."""
        if choice.id not in self._computing:
            self._computing.clear()  # they are large
            self._computing[choice.id] = asyncio.create_task(self._average_and_step(choice))
        return await asyncio.shield(self._computing[choice.id])

    async def _average_and_step(self, choice: Choice) -> Computed:
        following = self._begin(self.before)
        try:
            averaged = await self._exchange.average(following, choice)
        except OverflowError as error:
            raise ValueError("what others say of their contributions overflows") from error
        after = following.finish(averaged.tokens, averaged.counted, choice.left, weak=choice.weak)
        return Computed(after, averaged)
