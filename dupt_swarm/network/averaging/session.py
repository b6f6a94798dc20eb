"""One member's part in the agreement of its group, on the clock and over the network; see `agreement`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable

from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest.tables import Rounds
from dupt_swarm.network.averaging.agreement import Agreement, Decision, Report
from dupt_swarm.network.averaging.ballots import AnswerMessage, ReportMessage
from dupt_swarm.network.averaging.group import SharingGroup
from dupt_swarm.network.members.signed import as_text, from_text

ANSWER_SECONDS = 1.0  # until then an answer may wait for something to say
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
        signed: the list that was decided, as it was signed; empty before.
    """

    def __init__(self, group: SharingGroup, me: str, key: RSAPrivateKey, rounds: Rounds) -> None:
        """``me`` is the own peer id, ``key`` the own one; ``rounds`` has the time limits."""
        self.group = group
        self.agreement = Agreement(len(group.members), group.members.index(me), group.order, group.electors)
        self.signed = b""
        self._key, self._silence = key, rounds.chunk_seconds
        self._time_up = time.monotonic() + COLLECTING_RATIO * rounds.allreduce_seconds
        self._entered = time.monotonic()
        self._heard: dict[int, float] = {}
        self._patience = min(ANSWER_SECONDS, rounds.chunk_seconds / 3)
        self._news = asyncio.Event()  # set once, at the next change; another one takes its place then
        self._reports: set[asyncio.Task[bool]] = set()

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
            ValueError: it is no member, or its report is malformed.
        """
        report = self._note(self.group.members.index(member), message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while not self.agreement.is_news_to(report):
                    await self._news.wait()
        return AnswerMessage.of(self.agreement.answer(), as_text(self.signed))

    async def decide(self, ask: Ask) -> Decision | None:
        """The list that counts; None: too many are gone. ``ask`` reports to a peer, and gives its answer."""
        retry, asking_around = RETRY_SECONDS, asyncio.create_task(asyncio.sleep(0))
        asked_in, asked_at = 0, math.inf  # in the first ballot its coordinator is enough
        try:
            while self.decision is None:
                began, before = time.monotonic(), self.agreement.report()
                coordinator = self.agreement.coordinator
                answered = await self._confer(coordinator, before, ask)
                if self.decision is None and self._is_lost(coordinator):
                    logger.warning("no answer of the coordinator %s", self.group.members[coordinator])
                    ballot = self.agreement.ballot
                    if not self.agreement.give_up():
                        return None
                    self._moved_on(ballot)
                if self.agreement.ballot != asked_in or time.monotonic() - asked_at > self._silence:
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

    def _note(self, place: int, message: ReportMessage) -> Report:
        """Take the report of another member."""
        report = message.report(len(self.group.members))
        self._heard[place] = time.monotonic()
        with contextlib.suppress(ValueError):  # who asks around may be in the ballot of somebody else
            ballot = self.agreement.ballot
            self.agreement.note(place, report)
            self._moved_on(ballot)
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
        report = self.agreement.report()
        try:
            async with asyncio.timeout(self._silence):
                message = await ask(self.group.members[place], ReportMessage.of(self.group.group_id, report))
            answer = message.answer(len(self.group.members))
            if message.decided:
                signed = from_text(message.decided)
                self.agreement.decision, self.signed = self.group.check_list(signed), signed
        except Exception as error:
            # A member may fail in any way that libp2p knows, or answer nonsense.
            logger.debug("%s did not answer: %r", self.group.members[place], error)
            return False
        finally:
            self._tell()
        self._heard[place] = time.monotonic()
        if self.group.order[report.ballot % len(self.group.order)] == place:
            ballot = self.agreement.ballot
            self.agreement.hear(answer)
            self._moved_on(ballot)
        else:
            self.agreement.learn(answer.holders)
        return True

    async def _ask_around(self, ask: Ask) -> None:
        """Maybe somebody knows the decision: it may have been the last word of a coordinator that died.

        Whoever knows has ended the round and reports no more, so in a later ballot nobody waits to be told.
        """
        others = [place for place in self.group.order if place != self.agreement.me]
        await asyncio.gather(*(self._report_to(place, ask) for place in others))

    def _consider(self) -> None:
        if self.decision is not None:
            return
        now, before = time.monotonic(), (self.agreement.accepted, self.decision)
        live = [
            place for place in range(self.agreement.size) if now - self._last_heard(place) < self._silence
        ]
        self.agreement.consider({*live, self.agreement.me}, time_up=now > self._time_up)
        if self.decision is not None:
            self.signed = self.group.signed_list(self.decision).sign(self._key)
        if (self.agreement.accepted, self.decision) != before:
            self._tell()

    def _is_lost(self, coordinator: int) -> bool:
        """Whether to turn to another one: this one is silent, or decides nothing although it could."""
        now = time.monotonic()
        if coordinator != self.agreement.me and now - self._last_heard(coordinator) > self._silence:
            return True
        return now - max(self._entered, self._time_up) > 2 * self._silence

    def _last_heard(self, place: int) -> float:
        return max(self._heard.get(place, 0.0), self._entered)

    async def _change(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _moved_on(self, before: int) -> None:
        """A new ballot has begun if it is not ``before`` any more: its clock starts, and members hear."""
        if self.agreement.ballot != before:
            self._entered = time.monotonic()
            self._tell()

    def _tell(self) -> None:
        """Wake all who wait for a change."""
        self._news.set()
        self._news = asyncio.Event()
