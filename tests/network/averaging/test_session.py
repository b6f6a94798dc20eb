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
        return sessions[peer].reply(me, message)

    return ask


def test_who_comes_to_coordinate_hears_what_was_decided_before(sessions) -> None:
    """A coordinator dies when it has told one member. The next one is asked by another, and asks in turn.

    It was told of its ballot by a member that then learnt the decision elsewhere, and reports no more.
    """
    first, next_one, told, other = sessions

    def report(member: str, coordinator: str, *, answered: bool = True) -> None:
        agreement, group = sessions[member].agreement, sessions[member].group
        answer = sessions[coordinator].reply(member, ReportMessage.of(group.group_id, agreement.report()))
        if answered:
            agreement.hear(answer.answer(len(group.members)))

    async def scenario() -> None:
        for member in (next_one, told, other, told, other):  # the last two hear of the proposal
            report(member, first)
        report(other, first, answered=False)
        decisions = [await sessions[told].decide(caller(sessions, told, dead=""))]
        waiting = asyncio.create_task(sessions[next_one].decide(caller(sessions, next_one, dead=first)))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        assert sessions[other].agreement.give_up()
        report(other, next_one)
        async with asyncio.timeout(20):
            decisions.append(await waiting)
        assert [found and found.choice for found in decisions] == [(0, 1, 2, 3)] * 2

    asyncio.run(scenario())
