"""A member's part in an agreement, among members that are called directly."""

import asyncio

import pytest

from dupt_swarm.network.averaging.ballots import AnswerMessage, ReportMessage
from dupt_swarm.network.averaging.session import Ask, Session
from tests.support.sharing_groups import group_of, member_keys


@pytest.fixture
def sessions(make_manifest) -> dict[str, Session]:
    """Of four members by peer id, in the order in which they coordinate; each holds all contributions."""
    keys = member_keys(4)
    group = group_of(keys)
    rounds = make_manifest(rounds={"chunk_seconds": 60, "allreduce_seconds": 600}).rounds
    found = {}
    for place in group.order:
        peer = group.members[place]
        found[peer] = Session(group, peer, keys[peer], rounds)
        for each in range(len(keys)):
            found[peer].hold(each)
    return found


def caller(sessions: dict[str, Session], me: str, dead: str) -> Ask:
    """How ``me`` asks the others, of whom one is dead."""

    async def ask(peer: str, message: ReportMessage) -> AnswerMessage:
        if peer == dead:
            raise ConnectionError("it is dead")
        return await sessions[peer].answer(me, message)

    return ask


def test_who_waits_for_news_hears_at_once(sessions, monkeypatch) -> None:
    """Nobody asks again without a reason: a coordinator answers when it has something to say.

    The last member gets its contributions late; all hear of the list long before they would ask anew.
    """
    asked: list[str] = []

    def counting(me: str) -> Ask:
        ask = caller(sessions, me, dead="")

        async def count(peer: str, message: ReportMessage) -> AnswerMessage:
            asked.append(me)
            return await ask(peer, message)

        return count

    async def scenario() -> None:
        *early, late = sessions
        deciding = [asyncio.create_task(sessions[me].decide(counting(me))) for me in (*early, late)]
        await asyncio.sleep(0.2)
        assert len(asked) == 3 and not any(each.done() for each in deciding)
        for place in range(len(sessions)):
            sessions[late].hold(place)
        async with asyncio.timeout(10):
            decisions = await asyncio.gather(*deciding)
        assert [found and found.choice for found in decisions] == [(0, 1, 2, 3)] * 4
        assert max(map(asked.count, sessions)) <= 3 + len(sessions)  # the late one reports all that it gets

    for session in sessions.values():
        monkeypatch.setattr(session, "_patience", 60.0)
    *_, late = sessions.values()
    late.agreement.held.clear()
    asyncio.run(scenario())


def test_who_comes_to_coordinate_hears_what_was_decided_before(sessions, monkeypatch) -> None:
    """A coordinator dies when it has told one member. The next one is asked by another, and asks in turn.

    It was told of its ballot by a member that then learnt the decision elsewhere, and reports no more.
    """
    first, next_one, told, other = sessions
    for session in sessions.values():
        monkeypatch.setattr(session, "_patience", 0.05)

    async def report(member: str, coordinator: str, *, answered: bool = True) -> None:
        agreement, group = sessions[member].agreement, sessions[member].group
        message = ReportMessage.of(group.group_id, agreement.report())
        answer = await sessions[coordinator].answer(member, message)
        if answered:
            agreement.hear(answer.answer(len(group.members)))

    async def scenario() -> None:
        for member in (next_one, told, other, told, other):  # the last two hear of the proposal
            await report(member, first)
        await report(other, first, answered=False)
        decisions = [await sessions[told].decide(caller(sessions, told, dead=""))]
        waiting = asyncio.create_task(sessions[next_one].decide(caller(sessions, next_one, dead=first)))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert sessions[other].agreement.give_up()
        await report(other, next_one)
        async with asyncio.timeout(20):
            decisions.append(await waiting)
        assert [found and found.choice for found in decisions] == [(0, 1, 2, 3)] * 2

    asyncio.run(scenario())
