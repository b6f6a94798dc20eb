"""How long an agreement takes when members die, are deaf or lie: on a clock that does not wait."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from dupt_swarm.network.averaging import session as session_module
from dupt_swarm.network.averaging.reports import Answer, AnswerMessage, ReportMessage
from dupt_swarm.network.averaging.session import Ask, Session
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from tests.support.sharing_groups import group_of, member_keys
from tests.support.virtual_time import VirtualLoop

SILENCE, LIMIT = 15.0, 600.0
DELAY = 0.02  # of each message
AFTER_HALF = LIMIT / 2 + 5 * SILENCE

Reply = Callable[[int, ReportMessage], Awaitable[AnswerMessage]]


class Members:
    """Members of one group by their place in the order of coordinators; those in ``hidden`` cannot be called.

    Attributes:
        replies: what a member answers to another, in place of an honest one: it is dead, or lies.
        decided: when each has decided, and in which ballot.
    """

    def __init__(self, loop: VirtualLoop, make_manifest, size: int, hidden: int = 0) -> None:
        self.keys = member_keys(size)
        self.group = group_of(self.keys, hidden)
        rounds = {"chunk_seconds": SILENCE, "allreduce_seconds": LIMIT}
        self._loop, self._rounds = loop, make_manifest(rounds=rounds).rounds
        others = [place for place in range(size) if place not in self.group.order]
        self.places = [*self.group.order, *others]
        self.replies: dict[int, Reply] = {}
        self.decided: dict[int, tuple[float, int]] = {}
        self._sessions: dict[int, Session] = {}

    async def decide(self, *starts: float | None) -> None:
        """All who have a time to start decide, each from then on; each holds everything."""
        started = [(number, at) for number, at in enumerate(starts) if at is not None]
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(self._decide(number, at) for number, at in started))

    async def _decide(self, number: int, at: float) -> None:
        await asyncio.sleep(at)
        peer = self.group.members[self.places[number]]
        session = Session(self.group, peer, self.keys[peer], self._rounds)
        for place in self.places:
            session.hold(place)
        self._sessions[number] = session
        decision = await session.decide(self._ask_as(number))
        assert decision is not None
        self.decided[number] = (self._loop.time(), decision.ballot)

    def _ask_as(self, me: int) -> Ask:
        async def ask(peer: str, message: ReportMessage) -> AnswerMessage:
            other = self.places.index(self.group.members.index(peer))
            await asyncio.sleep(DELAY)
            if other in self.replies:
                answer = await self.replies[other](me, message)
            elif other in self._sessions and self.places[other] in self.group.order:
                own = self.group.members[self.places[me]]
                answer = await self._sessions[other].answer(own, message)
            else:
                raise CallError(Refusal.UNREACHABLE)
            await asyncio.sleep(DELAY)
            return answer

        return ask


@pytest.fixture
def loop(monkeypatch) -> VirtualLoop:
    """Sessions go by its time."""
    loop = VirtualLoop()
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=loop.time))
    return loop


def empty(ballot: int, size: int) -> AnswerMessage:
    """An answer of who says that it has come to this ballot, and nothing else."""
    return AnswerMessage.of(Answer(ballot, None, None, (frozenset(),) * size))


def test_one_dies_and_one_stalls(loop, make_manifest) -> None:
    """Of three, and the third cannot be called: where it waits, the one that stalled comes to it."""
    members = Members(loop, make_manifest, 3, hidden=1)

    async def stalls(_: int, message: ReportMessage) -> AnswerMessage:
        if 14.0 <= loop.time() < 32.0:
            await asyncio.sleep(32.0 - loop.time())
            raise CallError(Refusal.UNREACHABLE)
        return await members._sessions[1].answer(members.group.members[members.places[2]], message)

    members.replies[1] = stalls
    loop.run(members.decide(None, 0.0, 0.0))
    assert all(seconds < 6 * SILENCE for seconds, _ in members.decided.values()), members.decided


@pytest.mark.parametrize("late", [0.0, 0.05, 0.5, 5.0])
@pytest.mark.parametrize("led", [1, 2])
def test_a_coordinator_that_leads_one_ahead(loop, make_manifest, led, late) -> None:
    """It tells one of the two others that its ballot is over, and the other that it is not: they meet."""
    members = Members(loop, make_manifest, 3)

    async def leads(me: int, message: ReportMessage) -> AnswerMessage:
        return empty(message.ballot + 1 if me == led else 0, 3)

    members.replies[0] = leads
    loop.run(members.decide(None, late, 0.0))
    assert all(seconds < AFTER_HALF for seconds, _ in members.decided.values()), members.decided


@pytest.mark.parametrize("late", [0.0, 0.5, 5.0])
def test_one_is_led_on_and_the_other_held(loop, make_manifest, late) -> None:
    """In each ballot of the hostile one; who is held cannot be called: the other hears of it, and waits."""
    members = Members(loop, make_manifest, 3, hidden=1)

    async def leads_or_holds(me: int, message: ReportMessage) -> AnswerMessage:
        return empty(message.ballot + 1 if me == 1 else message.ballot, 3)

    members.replies[0] = leads_or_holds
    loop.run(members.decide(None, late, 0.0))
    assert all(seconds < AFTER_HALF for seconds, _ in members.decided.values()), members.decided


def test_one_dies_one_lies_and_two_cannot_be_called(loop, make_manifest) -> None:
    """Three of five are honest and there, and only one of these coordinates: they meet in its ballot."""
    members = Members(loop, make_manifest, 5, hidden=2)

    async def proposes_nothing(me: int, message: ReportMessage) -> AnswerMessage:
        del me, message
        return empty(0, 5)

    members.replies[1] = proposes_nothing
    loop.run(members.decide(None, None, 0.0, 0.0, 0.0))
    assert all(seconds < AFTER_HALF for seconds, _ in members.decided.values()), members.decided
