"""Where others report how a state is to be left, also when we have left it: late members hear of the link."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from dupt_swarm.network.p2p.rpc import blamed_on_caller
from dupt_swarm.network.rounds.evidence import Evidence
from dupt_swarm.network.rounds.messages import AnswerMessage, ReportMessage
from dupt_swarm.network.rounds.reports import Answer
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.task_group import wait_at_most
from dupt_swarm.replica.signed_words import Words

ANSWER_SECONDS = 1.0  # until then an answer may wait for something to say
# For so long contributions may come before others are told of them: each would wake everybody.
HELD_SECONDS = 0.25


class Desk:
    """Where others report on one state.

    Attributes:
        round: where leaving it stands.
        words: reads and signs.
        evidence: the words about this state.
        weight_max: so many tokens may a contribution stand for.
        on_report: called after each report, so that what is due is done.
    """

    def __init__(self, round: Round, words: Words, evidence: Evidence, weight_max: float) -> None:
        self.round, self.words, self.evidence, self.weight_max = round, words, evidence, weight_max
        self.on_report: Callable[[], None] = lambda: None
        self._told: dict[str, Answer] = {}
        self._news = asyncio.Event()  # set once, at the next change; another one takes its place then

    async def answer(self, caller: str, message: ReportMessage) -> AnswerMessage:
        """What to answer to a report, as soon as there is something to say, or after a second.

        Raises:
            CallError: it is malformed.
        """
        with blamed_on_caller():
            report = await asyncio.to_thread(message.report, self.words, caller, self.weight_max)
            self.evidence.note(report.words)
        began = time.monotonic()
        self.round.note(report, began)
        self.on_report()
        self.tell()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while self._is_old(self._told.get(caller), began):
                    await self.change(HELD_SECONDS)
        answer = self.round.answer()
        if self.round.stock.has_place_for(caller, self._told):
            self._told[caller] = answer
        return AnswerMessage.of(answer)

    def _is_old(self, told: Answer | None, began: float) -> bool:
        """Whether there is nothing to say that was not told; of what comes here, not at once."""
        if told is None:
            return False
        now, soon = self.round.answer(), time.monotonic() < began + HELD_SECONDS
        return (replace(now, held=told.held) if soon else now) == told

    def tell(self) -> None:
        """Wake all who wait for a change."""
        self._news.set()
        self._news = asyncio.Event()

    async def change(self, seconds: float) -> None:
        """Wait until something has changed, but not for longer."""
        await wait_at_most(self._news, seconds)
