"""What a coordinator has of one round that is about to end: who has come, and the roll once it is called."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from dupt_swarm.manifest.tables import Rounds
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.replica.log_entry import MEMBERS_MAX

ANSWER_SECONDS = 1.0  # until then an answer may wait for the roll
GAP_SECONDS = 1.0  # between two questions of a member that is still there
KEPT_SECONDS = 30.0  # for so long is it known when a member came that asks no more, or is slow to ask
LEAST_MEMBERS = 2
HERE_MAX = 2 * MEMBERS_MAX

Call = Callable[[Sequence[Statement]], Roll]


def loop_time() -> float:
    """Seconds on the event loop's clock, which a test may let pass without waiting."""
    return asyncio.get_running_loop().time()


@dataclass
class _Arrival:
    """A member that has come."""

    statement: Statement
    came: float
    heard: float
    waiting: int = 0  # questions that are not answered yet

    def is_here(self, now: float) -> bool:
        """Whether it asks on; else it is elsewhere by now."""
        return self.waiting > 0 or now - self.heard <= GAP_SECONDS


class Gathering:
    """Those who have come to end the round after one state.

    Attributes:
        roll: the last one that was called; None: none so far.
        awaited: peer ids of those who should come before it is called, our own among them; None: our oracle
            is not ready yet. The node coordinates all the same, if need be without it.
    """

    def __init__(
        self,
        me: str,
        call: Call,
        known: Callable[[], Collection[str]],
        electorate: Callable[[], Electorate],
        admits: Callable[[str], bool],
        rounds: Rounds,
    ) -> None:
        """Begin.

        Args:
            me: the id of this peer.
            call: signs a roll.
            known: gives the ids of those who are at this state, as records show.
            electorate: gives whose votes on the round count.
            admits: says whether a peer may be on the roll, also of one that has come when it still might.
            rounds: has the time limit.
        """
        self.roll: Roll | None = None
        self.awaited: Collection[str] | None = None
        self._me, self._call, self._known, self._rounds = me, call, known, rounds
        self._electorate, self._admits = electorate, admits
        self._arrivals: dict[str, _Arrival] = {}
        self._called_at = -math.inf
        self._called = asyncio.Event()  # set once; another one takes its place then

    async def answer(self, statement: Statement) -> Roll | None:
        """The roll with ``statement`` on it, as soon as it is called; None: not yet, ask again.

        A statement is signed anew, and differs, for each attempt to end a round. So who asks with one that is
        on the last roll asks for that one, and who brings another needs a new roll.

        Raises:
            CallError: too many have come.
        """
        if self.roll is not None and statement in self.roll.statements:
            return self.roll
        arrival = self._arrive(statement)
        self.consider()
        arrival.waiting += 1
        try:
            if self.roll is None or statement not in self.roll.statements:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._until_answer()):
                        await self._called.wait()
                self.consider()
        finally:
            arrival.waiting -= 1
            arrival.heard = loop_time()
        return self.roll if self.roll is not None and statement in self.roll.statements else None

    def leave(self, peer_id: str) -> None:
        """Our own oracle ends the round elsewhere, or not at all: nobody is awaited in its name."""
        self._arrivals.pop(peer_id, None)
        self.awaited = None

    def consider(self) -> None:
        """Call the roll if all have come, or if nobody is waited for any longer."""
        arrived = self._here
        here = [arrival.statement for peer, arrival in arrived.items() if self._admits(peer)]
        all_here = self.awaited is not None and arrived.keys() >= set(self.awaited)
        if len(here) < LEAST_MEMBERS or not any(each.callable for each in here):
            return
        if not (all_here or loop_time() >= self._due()) or self._is_under_way():
            return
        known, electorate = self._expected, self._electorate()
        here.sort(key=lambda each: (each.maker not in electorate.voters, each.maker not in known))
        members = [each.maker for each in here[:MEMBERS_MAX]]
        if not electorate.is_quorum(members, members):
            return  # they could end nothing
        self.roll, self._called_at = self._call(here[:MEMBERS_MAX]), loop_time()
        self._arrivals, self.awaited = {}, None
        called, self._called = self._called, asyncio.Event()
        called.set()

    def _arrive(self, statement: Statement) -> _Arrival:
        now = loop_time()
        self._arrivals = {
            peer: each
            for peer, each in self._arrivals.items()
            if each.waiting or now - each.heard < KEPT_SECONDS
        }
        arrival = self._arrivals.get(statement.maker)
        if arrival is None and len(self._arrivals) >= HERE_MAX and statement.maker not in self._known():
            raise CallError(Refusal.LATER, "too many have come to end this round")
        if arrival is None or (arrival.statement != statement and not arrival.is_here(now)):
            arrival = _Arrival(statement, now, now)
        arrival.statement, arrival.heard = statement, now
        self._arrivals[statement.maker] = arrival
        return arrival

    @property
    def _here(self) -> dict[str, _Arrival]:
        """Those who ask."""
        now = loop_time()
        return {peer: each for peer, each in self._arrivals.items() if each.is_here(now)}

    @property
    def _expected(self) -> set[str]:
        """Those who are at this state, as far as anybody here knows."""
        return {*self._known(), *(self.awaited or ())}

    def _due(self) -> float:
        """When those who are here have waited long enough.

        Their time runs from when our own oracle has come, or a quorum: a few that come early, and stay, would
        make all others late.
        """
        here = self._here
        known = self._expected or here.keys()
        electorate, came = self._electorate(), list[str]()
        for peer_id, arrival in sorted(here.items(), key=lambda item: item[1].came):
            came.append(peer_id)
            if peer_id == self._me or electorate.is_quorum(came, {self._me, *known}):
                return arrival.came + self._rounds.matchmaking_seconds
        return math.inf

    def _until_answer(self) -> float:
        """Seconds."""
        patience = min(ANSWER_SECONDS, self._rounds.matchmaking_seconds / 6)
        left = self._due() - loop_time()
        return left if 0 < left < patience else patience

    def _is_under_way(self) -> bool:
        """Whether those on the last roll are ending the round: none of them has come again."""
        if self.roll is None or loop_time() - self._called_at > self._rounds.allreduce_seconds:
            return False
        return self._here.keys().isdisjoint(self.roll.members)
