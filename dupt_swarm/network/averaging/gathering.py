"""What a coordinator has of one round that is about to end: who has come, and the roll once it is called."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Sequence

from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.statement import Statement

ANSWER_SECONDS = 1.0  # until then an answer may wait for the roll
LEAST_MEMBERS = 2

Call = Callable[[Sequence[Statement], str], Roll]


class Gathering:
    """Those who have come to end the round after one state.

    Attributes:
        roll: the last one that was called; None: none so far.
        awaited: peer ids of those who should come before it is called; None: our own oracle is not ready
            yet, so that nobody knows. The node coordinates all the same, if need be without it.
    """

    def __init__(self, call: Call, patience: float, silence: float) -> None:
        """``call`` signs a roll, after ``patience`` seconds at the latest.

        Who has said nothing for ``silence`` seconds by then is not on it.
        """
        self.roll: Roll | None = None
        self.awaited: Collection[str] | None = None
        self._call, self._patience, self._silence = call, patience, silence
        self._here: dict[str, tuple[Statement, float]] = {}
        self._began = math.inf
        self._called = asyncio.Event()  # set once; another one takes its place then

    async def answer(self, statement: Statement, after: str) -> Roll | None:
        """The roll with ``statement`` on it, as soon as it is called; None: not yet, ask again.

        ``after`` is the id of the last roll that this member was on, of the same state: it came to nothing.
        """
        if (called := self._roll_of(statement, after)) is not None:
            return called
        now = asyncio.get_running_loop().time()
        self._here[statement.maker] = statement, now
        self._began = min(self._began, now)
        self.consider()
        if self._roll_of(statement, after) is None:
            until, due = now + ANSWER_SECONDS, self._began + self._patience
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due if now < due < until else until):
                    await self._called.wait()
            self.consider()
        return self._roll_of(statement, after)

    def leave(self, peer_id: str) -> None:
        """This peer comes elsewhere."""
        self._here.pop(peer_id, None)

    def consider(self) -> None:
        """Call the roll if all have come, or if nobody is waited for any longer."""
        now = asyncio.get_running_loop().time()
        here = [statement for statement, heard in self._here.values() if now - heard <= self._silence]
        all_here = self.awaited is not None and {each.maker for each in here}.issuperset(self.awaited)
        if len(here) < LEAST_MEMBERS or not (all_here or now - self._began >= self._patience):
            return
        self.roll = self._call(here, self.roll.id if self.roll is not None else "")
        self._here, self._began, self.awaited = {}, math.inf, None
        called, self._called = self._called, asyncio.Event()
        called.set()

    def _roll_of(self, statement: Statement, after: str) -> Roll | None:
        roll = self.roll
        return roll if roll is not None and roll.id != after and statement in roll.statements else None
