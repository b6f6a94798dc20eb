"""One member's part in the agreement of its group, on the clock and over the network; see `agreement`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial

from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest.tables import Rounds
from dupt_swarm.network.averaging.agreement import Agreement
from dupt_swarm.network.averaging.group import SharingGroup, contradictions
from dupt_swarm.network.averaging.pledge import Proof
from dupt_swarm.network.averaging.reports import Answer, AnswerMessage, Decision, Report, ReportMessage
from dupt_swarm.network.p2p.rpc import CallError, blamed_on_caller

ANSWER_SECONDS = 1.0  # until then an answer may wait for something to say
COMPARE_SECONDS = 2.0  # for one that is asked for its list when the round has failed
RETRY_SECONDS = 0.1  # at first, when there was no answer
# Of the time limit of a round: then nobody is waited for any more, and the rest is for the agreement.
COLLECTING_RATIO = 0.5

Ask = Callable[[str, ReportMessage], Awaitable[AnswerMessage]]

logger = logging.getLogger(__name__)


class Session:
    """Asks the coordinator again and again, or is it, until the list is decided.

    Attributes:
        group: whose agreement it is.
        agreement: what has been said and heard.
    """

    def __init__(self, group: SharingGroup, me: str, key: RSAPrivateKey, rounds: Rounds) -> None:
        """``me`` is the own peer id, ``key`` the own one; ``rounds`` has the time limits."""
        self.group = group
        self.agreement = Agreement(
            len(group.members),
            group.members.index(me),
            group.order,
            group.electors,
            sign=partial(group.sign, me, key),
        )
        self._silence = rounds.chunk_seconds
        self._time_up = time.monotonic() + COLLECTING_RATIO * rounds.allreduce_seconds
        self._ballot, self._entered = 0, time.monotonic()  # since when we are in it
        self._met = math.inf  # since when its coordinator is, or those who come to us as such
        self._heard: dict[int, float] = {}
        self._silent: set[int] = set()  # coordinators, until they are heard again
        self._patience = min(ANSWER_SECONDS, rounds.chunk_seconds / 3)
        self._news = asyncio.Event()  # set once, at the next change; another one takes its place then
        self._reports: set[asyncio.Task[bool]] = set()

    @property
    def members(self) -> list[str]:
        """Peer ids of the group."""
        return self.group.members

    @property
    def decision(self) -> Decision | None:
        """What was decided, once it is known."""
        return self.agreement.decision

    def hold(self, place: int) -> None:
        """The contribution of ``place`` is here now."""
        self.agreement.hold(place)
        self._tell()

    async def answer(self, member: str, message: ReportMessage) -> AnswerMessage:
        """What to answer to the report of ``member``, as soon as there is something to say.

        So members need not ask often, and hear at once. After a second there is an answer anyway.

        Raises:
            CallError: its report is malformed.
        """
        place = self.group.members.index(member)
        with blamed_on_caller():
            report = self._note(place, message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while not self.agreement.is_news_to(place, report):
                    await self._news.wait()
        return AnswerMessage.of(self.agreement.answer())

    async def decide(self, ask: Ask) -> Decision | None:
        """The list that counts; None: too many are gone. ``ask`` reports to a peer, and gives its answer."""
        retry, asking_around = RETRY_SECONDS, asyncio.create_task(asyncio.sleep(0))
        asked_in, asked_at = 0, time.monotonic()
        try:
            while self.decision is None:
                began, before = time.monotonic(), self.agreement.report()
                coordinator = self.agreement.coordinator
                answered = await self._confer(coordinator, before, ask)
                if self.decision is None and self.agreement.coordinator == coordinator and self._is_lost():
                    logger.warning("no list of the coordinator %s", self.group.members[coordinator])
                    if not self.agreement.give_up():
                        return None
                    self._look()
                waited = time.monotonic() - asked_at
                patience = self._silence if answered else self._patience
                if self.agreement.ballot != asked_in or waited > patience:
                    asked_in, asked_at = self.agreement.ballot, time.monotonic()
                    asking_around.cancel()
                    asking_around = asyncio.create_task(self._ask_around(ask))
                if self.agreement.report() != before:
                    retry = RETRY_SECONDS
                elif self.decision is None:
                    retry = self._patience if answered else min(1.5 * retry, self._patience)
                    await self._change(began + retry - time.monotonic())
        finally:
            for task in (asking_around, *self._reports):
                task.cancel()
            await asyncio.gather(asking_around, *self._reports, return_exceptions=True)
        return self.decision

    async def compare(self, peer: str, ask: Ask) -> list[Proof]:
        """What the list that ``peer`` knows proves, if it is another one than ours."""
        answer = await self._answer_of(peer, ask, COMPARE_SECONDS)
        if answer is None or answer.decision is None or self.decision is None:
            return []
        return contradictions(self.decision, answer.decision)

    def _note(self, place: int, message: ReportMessage) -> Report:
        """Take the report of another member."""
        report = message.report(len(self.group.members))
        if report.accepted is not None and place in self.group.electors:
            self.group.check_acceptance(place, report.accepted)
        self._hear_from(place)
        self.agreement.note(place, report)
        self._look()
        self._consider()
        return report

    async def _confer(self, coordinator: int, report: Report, ask: Ask) -> bool:
        """Be the coordinator, or report to it and await its answer or something new to report.

        Returns:
            whether it answers, as far as is known.
        """
        if coordinator == self.agreement.me:
            self._consider()
            return True
        # What it answers to a report that is out of date by then is heard too: it shows that it lives.
        asking = asyncio.create_task(self._report_to(coordinator, ask))
        self._reports.add(asking)
        asking.add_done_callback(self._reports.discard)
        while self.decision is None and not asking.done() and self.agreement.report() == report:
            await self._news.wait()
        return not asking.done() or asking.result()

    async def _report_to(self, place: int, ask: Ask) -> bool:
        """Tell one member where we stand, and hear what it answers; whether it did."""
        answer = await self._answer_of(self.group.members[place], ask, self._silence)
        if answer is not None:
            self._hear_from(place)
            self.agreement.hear(place, answer)
            self._look()
        self._tell()
        return answer is not None

    async def _answer_of(self, peer: str, ask: Ask, seconds: float) -> Answer | None:
        """What a member answers to our report within ``seconds``; None: nothing, or nonsense."""
        try:
            async with asyncio.timeout(seconds):
                message = await ask(peer, ReportMessage.of(self.group.group_id, self.agreement.report()))
            answer = message.answer(len(self.group.members))
            if answer.decision is not None:  # it has many signatures
                await asyncio.to_thread(self.group.check_decision, answer.decision)
        except (CallError, ValueError, TimeoutError) as error:
            logger.debug("%s did not answer: %r", peer, error)
            return None
        return answer

    async def _ask_around(self, ask: Ask) -> None:
        """Maybe somebody knows the decision: it may have been the last word of a coordinator that died.

        Whoever knows has ended the round and reports no more, so nobody waits to be told. The others learn
        that we are there, and in which ballot.
        """
        others = [place for place in self.group.order if place != self.agreement.me]
        await asyncio.gather(*(self._report_to(place, ask) for place in others))

    def _consider(self) -> None:
        if self.decision is not None:
            return
        now, before = time.monotonic(), (self.agreement.proposal, self.agreement.accepted)
        live = {
            place
            for place in range(self.agreement.size)
            if place not in self._silent and now - self._last_heard(place) < self._silence
        }
        self.agreement.consider(
            {*live, self.agreement.me},
            time_up=now > self._time_up,
            overdue=now - self._entered > self._silence,
        )
        if self.decision is not None or (self.agreement.proposal, self.agreement.accepted) != before:
            self._tell()

    def _is_lost(self) -> bool:
        """Whether to turn to another coordinator: this one is silent, or has decided nothing for long."""
        now, coordinator = time.monotonic(), self.agreement.coordinator
        if coordinator != self.agreement.me and now - self._last_heard(coordinator) > self._silence:
            self._silent.add(coordinator)
            return True
        lately = {place for place, at in self._heard.items() if now - at < 2 * self._silence}
        if self.agreement.is_deserted(lately):
            return now - self._entered > 2 * self._silence
        if self._met == math.inf:  # who is in an earlier ballot comes as soon as that is over
            return now - max(self._entered, self._time_up) > 4 * self._silence
        return now - max(self._met, self._time_up) > 2 * self._silence

    def _last_heard(self, place: int) -> float:
        return max(self._heard.get(place, 0.0), self._entered)

    def _hear_from(self, place: int) -> None:
        self._heard[place] = time.monotonic()
        self._silent.discard(place)

    async def _change(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _look(self) -> None:
        """Whether a new ballot has begun: its clock starts, and members hear."""
        if self.agreement.ballot != self._ballot:
            self._ballot, self._entered, self._met = self.agreement.ballot, time.monotonic(), math.inf
            self._tell()
        if self._met == math.inf and self.agreement.has_met:
            self._met = time.monotonic()

    def _tell(self) -> None:
        """Wake all who wait for a change."""
        self._news.set()
        self._news = asyncio.Event()
