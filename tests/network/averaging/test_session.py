"""A member's part in an agreement, among members that are called directly."""

import asyncio
import itertools
from typing import Any

import pytest
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest.tables import Rounds
from dupt_swarm.network.averaging.reports import AnswerMessage, ReportMessage
from dupt_swarm.network.averaging.session import Ask, Session
from dupt_swarm.network.host import background
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from tests.support.sharing_groups import group_of, member_keys


def sessions_of(keys: dict[str, RSAPrivateKey], rounds: Rounds) -> dict[str, Session]:
    """By peer id, in the order in which they coordinate; each holds all contributions."""
    group = group_of(keys)
    found = {}
    for place in group.order:
        peer = group.members[place]
        found[peer] = Session(group, peer, keys[peer], rounds)
        for each in range(len(keys)):
            found[peer].hold(each)
    return found


@pytest.fixture
def sessions(make_manifest) -> dict[str, Session]:
    """Of four members, whose patience outlasts the test."""
    rounds = make_manifest(rounds={"chunk_seconds": 60, "allreduce_seconds": 600}).rounds
    return sessions_of(member_keys(4), rounds)


def caller(sessions: dict[str, Session], me: str, dead: str) -> Ask:
    """How ``me`` asks the others, of whom one is dead."""

    async def ask(peer: str, message: ReportMessage) -> AnswerMessage:
        if peer == dead:
            raise CallError(Refusal.UNREACHABLE, "it is dead")
        return await sessions[peer].answer(me, message)

    return ask


def test_who_waits_for_news_hears_at_once(sessions, monkeypatch) -> None:
    """Nobody asks again without a reason: a coordinator answers when it has something to say.

    Half of them get their contributions late; all hear of the list long before they would ask anew.
    """
    asked: list[str] = []

    def counting(me: str) -> Ask:
        ask = caller(sessions, me, dead="")

        async def count(peer: str, message: ReportMessage) -> AnswerMessage:
            asked.append(me)
            return await ask(peer, message)

        return count

    async def scenario() -> None:
        deciding = [asyncio.create_task(sessions[me].decide(counting(me))) for me in sessions]
        await asyncio.sleep(0.2)
        assert len(asked) == 3 and not any(each.done() for each in deciding)
        for place in range(len(sessions)):
            for session in late:
                session.hold(place)
        async with asyncio.timeout(10):
            decisions = await asyncio.gather(*deciding)
        assert [found and found.choice for found in decisions] == [(0, 1, 2, 3)] * 4
        assert max(map(asked.count, sessions)) <= 3 + len(sessions)  # the late ones report all that they get

    for session in sessions.values():
        monkeypatch.setattr(session, "_patience", 60.0)
    late = list(sessions.values())[2:]
    for session in late:
        session.agreement.held.clear()
    asyncio.run(scenario())


def test_what_was_decided_before_the_coordinator_died(sessions, monkeypatch) -> None:
    """It had told one member, which reports no more: whoever gets no answer asks around."""
    first, told, *others = sessions
    for session in sessions.values():
        monkeypatch.setattr(session, "_patience", 0.05)

    async def accept() -> None:
        """The others' acceptances arrive, and the answers to them are lost."""
        for each in 3 * others:
            await report_to(sessions, each, first)

    async def scenario() -> None:
        early = [sessions[me].decide(caller(sessions, me, dead="")) for me in (first, told)]
        async with asyncio.timeout(20):
            *decisions, _ = await asyncio.gather(*early, accept())
        assert [sessions[each].decision for each in others] == [None] * 2
        late = [sessions[me].decide(caller(sessions, me, dead=first)) for me in others]
        async with asyncio.timeout(20):
            decisions += await asyncio.gather(*late)
        assert [found and found.choice for found in decisions] == [(0, 1, 2, 3)] * 4

    asyncio.run(scenario())


async def report_to(sessions: dict[str, Session], member: str, peer: str, **said: Any) -> None:
    """A member reports once, or says something else, and hears the answer."""
    session = sessions[member]
    message = ReportMessage.of(session.group.group_id, session.agreement.report())
    answer = await sessions[peer].answer(member, message.model_copy(update=said))
    await asyncio.sleep(0)
    members = session.group.members
    if not answer.decision:
        session.agreement.hear(members.index(peer), answer.answer(len(members)))


async def far_ahead(sessions: dict[str, Session], liar: str) -> None:
    """Tells everybody of ballots that nobody has come to."""
    for ballot in itertools.cycle(range(1, 30)):
        for peer in sessions:
            if peer != liar:
                await report_to(sessions, liar, peer, ballot=ballot, held="0")


async def nothing_held(sessions: dict[str, Session], liar: str) -> None:
    """Says that it has nothing, and never accepts anything."""
    while True:
        for peer in sessions:
            if peer != liar:
                await report_to(sessions, liar, peer, held="0", accepted=None)


@pytest.mark.parametrize("lies", [far_ahead, nothing_held])
def test_a_member_that_lies(sessions, lies) -> None:
    """The others decide in the first ballot, before anybody's patience is over."""
    *honest, liar = sessions

    async def scenario() -> None:
        async with background(lies(sessions, liar)), asyncio.timeout(20):
            decisions = await asyncio.gather(
                *(sessions[me].decide(caller(sessions, me, dead="")) for me in honest)
            )
        assert [found and (found.ballot, found.choice) for found in decisions] == [(0, (0, 1, 2, 3))] * 3

    asyncio.run(scenario())


def test_a_coordinator_that_proposes_what_it_keeps_to_itself(make_manifest) -> None:
    """Nobody accepts that, and the next one coordinates a list without it."""
    keys = member_keys(4)
    sessions = sessions_of(keys, make_manifest(rounds={"chunk_seconds": 0.5, "allreduce_seconds": 2}).rounds)
    liar, *honest = sessions
    withheld = sessions[liar].agreement.me
    for me in honest:
        sessions[me].agreement.held.discard(withheld)

    def ask_as(me: str) -> Ask:
        async def ask(peer: str, message: ReportMessage) -> AnswerMessage:
            answer = await sessions[peer].answer(me, message)
            return answer.model_copy(update={"proposal": "f"}) if peer == liar else answer

        return ask

    async def scenario() -> None:
        async with asyncio.timeout(30):
            decisions = await asyncio.gather(*(sessions[me].decide(ask_as(me)) for me in honest))
        choice = tuple(place for place in range(4) if place != withheld)
        assert [found and (found.ballot, found.choice) for found in decisions] == [(1, choice)] * 3

    asyncio.run(scenario())
