"""Collecting votes between real nodes on loopback."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.pledge import Proof, Subject, Vote
from dupt_swarm.network.averaging.polls import (
    RETRY_SECONDS,
    PollResult,
    Polls,
    VoteMessage,
    VotesMessage,
)
from dupt_swarm.network.averaging.roll import GROUPS_MAX, Roll
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.rpc import Refusal
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.signed import as_text
from tests.support.sharing_groups import STATE
from tests.support.stranger import call_raw, stranger_beside

ONE, OTHER = "1" * 64, "2" * 64
MALFORMED_VOTES: list[dict[str, Any]] = [
    *({"roll": "?"}, {"vote": "?"}, {"vote": "abcd"}, {"vote": 1}, {"known": ["?"]}, {"known": None}),
    *({"more": 1}, {"known": [ONE] * 1000}),
]
SECONDS = 6.0


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 2, "chunk_seconds": 2, "allreduce_seconds": SECONDS})


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


class Group:
    """Members with a roll of them all."""

    def __init__(self, manifest, peers, hidden: Sequence[int] = ()) -> None:
        self.peers, self.electorate = peers, Electorate()
        self.contexts = [
            RoundContext(manifest, peer.p2p, peer.key, 1, callable=number not in hidden)
            for number, peer in enumerate(peers)
        ]
        self.polls = [Polls(context, lambda: self.electorate) for context in self.contexts]
        statements = [context.sign_statement(Claim(3, STATE, 10, context.me)) for context in self.contexts]
        self.roll = Roll.call(self.contexts[0].me, self.contexts[0].key, statements)
        self.subject = Subject(manifest.swarm_id, self.roll.id, 3, STATE)

    async def open(self) -> None:
        for each in self.polls:
            await each.open()

    async def certify(self, *states: str) -> list[tuple[Vote, ...]]:
        """The first members vote for these."""
        return [decision.votes for decision in await self.decide(*((state, True) for state in states))]

    async def decide(self, *wanted: tuple[str, bool]) -> list[PollResult]:
        """The first members vote for these states, or against them."""
        voting = self.polls[: len(wanted)]
        for each in voting:
            each.begin(self.roll)
        decisions = (
            each.certify(self.roll, state, accepted=accepted)
            for each, (state, accepted) in zip(voting, wanted, strict=True)
        )
        return list(await asyncio.gather(*decisions))


def test_all_get_the_votes_of_a_quorum(stations, manifest) -> None:
    """Whether they can be called or not; each vote is signed by who has cast it, for that state."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers, hidden=[1, 2])
            await group.open()
            for votes in await group.certify(ONE, ONE, ONE):
                assert len(votes) >= 2
                assert {Vote.read(vote.data).digest for vote in votes} == {ONE}
                assert {vote.subject for vote in votes} == {group.subject}

    run(scenario)


def test_who_has_another_state_is_alone_with_it(stations, manifest) -> None:
    """The others have a quorum; it knows soon that it has none, and who they are."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            await group.open()
            before = asyncio.get_running_loop().time()
            first, second, third = await group.decide((ONE, True), (OTHER, True), (ONE, True))
            assert asyncio.get_running_loop().time() - before < SECONDS
            assert (len(first.votes), second.votes, len(third.votes)) == (2, (), 2)
            assert set(second.others) == {peers[0].peer_id, peers[2].peer_id}

    run(scenario)


def test_members_that_have_computed_none(stations, manifest) -> None:
    """The others know soon that they are no quorum, and that nobody rejects the state."""

    async def scenario() -> None:
        async with stations(4, manifest) as peers:
            group = Group(manifest, peers)
            await group.open()
            for each in group.polls:
                each.begin(group.roll)
            before = asyncio.get_running_loop().time()
            voting = asyncio.gather(*(each.certify(group.roll, ONE) for each in group.polls[2:]))
            await asyncio.gather(*(each.abstain(group.roll) for each in group.polls[:2]))
            for decision in await voting:
                assert (decision.votes, decision.rejected) == ((), False)
                assert set(decision.others) == {peer.peer_id for peer in peers[:2]}
            assert asyncio.get_running_loop().time() - before < SECONDS

    run(scenario)


def test_an_abstention_hides_no_rejection(stations, manifest) -> None:
    """Those who reject a state see that they are enough, whoever has abstained before."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            await group.open()
            for each in group.polls:
                each.begin(group.roll)
            await group.polls[0].abstain(group.roll)
            first = asyncio.create_task(group.polls[1].certify(group.roll, ONE, accepted=False))
            await asyncio.sleep(1)
            second = await group.polls[2].certify(group.roll, ONE, accepted=False)
            assert [decision.rejected for decision in (await first, second)] == [True, True]

    run(scenario)


@pytest.mark.parametrize(
    ("accepting", "taken", "rejected"), [(2, True, False), (1, False, True), (0, False, True)]
)
def test_members_that_want_to_stay(stations, manifest, accepting: int, taken: bool, rejected: bool) -> None:
    """Most decide: who is outvoted takes the state; if too many reject it all know soon, and nobody lies."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            await group.open()
            before = asyncio.get_running_loop().time()
            decisions = await group.decide(*((ONE, number < accepting) for number in range(3)))
            assert asyncio.get_running_loop().time() - before < SECONDS
            assert [bool(decision.votes) for decision in decisions] == [taken] * 3
            assert [decision.rejected for decision in decisions] == [rejected] * 3
            assert [decision.others for decision in decisions] == [()] * 3
            assert not any(polls._boxes[group.roll.id].contradictions for polls in group.polls)

    run(scenario)


def test_only_voters_reject(stations, manifest) -> None:
    """A stranger's vote neither takes a state nor rejects it."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            group.electorate = Electorate(frozenset({peers[0].peer_id}))
            await group.open()
            decisions = await group.decide((ONE, True), (ONE, False), (ONE, False))
            assert all(decision.votes for decision in decisions)

    run(scenario)


def test_a_member_that_is_silent(stations, manifest) -> None:
    """Nobody waits for it where the others are enough; where they are not, nobody takes the state."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            await group.open()
            assert [len(votes) for votes in await group.certify(ONE, ONE)] == [2, 2]
            group.electorate = Electorate(frozenset({peers[0].peer_id, peers[2].peer_id}))
            assert await group.certify(ONE, ONE) == [(), ()]

    run(scenario)


def test_a_voter_that_goes_meanwhile(stations, manifest) -> None:
    """As soon as it is seen to be gone, the others are enough."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            await group.open()
            ids = [peer.peer_id for peer in peers]
            group.electorate = Electorate(frozenset(ids[1:]))
            voting = asyncio.create_task(group.certify(ONE, ONE))
            await asyncio.sleep(2)
            assert not voting.done()
            group.electorate = Electorate(frozenset(ids[1:2]))
            assert all(await voting)

    run(scenario)


def test_alone(stations, manifest) -> None:
    """The own vote is enough where no other voter is there."""

    async def scenario() -> None:
        async with stations(1, manifest) as peers:
            group = Group(manifest, peers)
            [vote] = group.polls[0].alone(3, STATE, ONE)
            assert (vote.maker, vote.digest, vote.subject.roll) == (peers[0].peer_id, ONE, "")
            group.electorate = Electorate(frozenset({peers[0].peer_id, "QmOther"}))
            assert group.polls[0].alone(3, STATE, ONE) == ()

    run(scenario)


def test_strangers(stations, manifest, identities) -> None:
    """Who is in no group of ours is turned away before what it says is read, be it a vote or nonsense."""
    key = load_identity(identities[3])

    async def scenario() -> None:
        async with (
            stations(2, manifest) as peers,
            stranger_beside(peers[0].address, identity=identities[3]) as p2p,
        ):
            group = Group(manifest, peers)
            await group.open()
            group.polls[0].begin(group.roll)
            vote = as_text(Vote.sign(group.subject, OTHER, str(p2p.peer_id), key).data)
            for data in (VoteMessage(roll=group.roll.id, vote=vote).pack(), b"?"):
                reply = await call_raw(p2p, peers[0].address, "Polls.rpc_vote", data)
                assert reply[0] == Refusal.NOT_ALLOWED
            assert peers[0].p2p.refused == {}
            assert len(group.polls[0]._boxes[group.roll.id].all) == 0
            assert all(await group.certify(ONE, ONE))

    run(scenario)


def test_nonsense_of_a_member(stations, manifest) -> None:
    """It is refused, and so is a vote in a group that is unknown, or not the member's; the others go on."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group, pair = Group(manifest, peers), Group(manifest, peers[:2])
            await group.open()
            for roll in (group.roll, pair.roll):
                group.polls[0].begin(roll)
            member = group.contexts[2]
            vote = as_text(Vote.sign(group.subject, ONE, member.me, member.key).data)
            good = {"roll": group.roll.id, "vote": vote, "known": []}
            cases: list[tuple[dict[str, Any], Refusal]] = [
                *(({"roll": "ab" * 20}, Refusal.NOT_HELD), ({"roll": pair.roll.id}, Refusal.NOT_ALLOWED)),
                *((change, Refusal.MALFORMED) for change in MALFORMED_VOTES),
            ]
            for change, refusal in cases:
                data = json.dumps(good | change).encode()
                reply = await call_raw(peers[2].p2p, peers[0].address, "Polls.rpc_vote", data)
                assert reply[0] == refusal, (change, reply)
            assert peers[0].p2p.refused == {"form": len(MALFORMED_VOTES)}
            assert all(await group.certify(ONE, ONE))

    run(scenario)


class Lying(Polls):
    """Answers with votes of others that nobody has cast."""

    @Polls.rpc_vote.override
    async def rpc_vote(self, _request: VoteMessage, _caller: str) -> VotesMessage:
        context = self._context
        [box] = self._boxes.values()
        forged = [Vote.sign(box.subject, OTHER, context.me, context.key).data[:-1] + b"\0"]
        return VotesMessage(votes=tuple(map(as_text, forged)))


def test_a_collector_that_lies(stations, manifest) -> None:
    """The others ask one another, and have their quorum."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group = Group(manifest, peers)
            group.polls[2] = Lying(group.contexts[2], lambda: group.electorate)
            await group.open()
            group.polls[2].begin(group.roll)
            assert [len(votes) for votes in await group.certify(ONE, ONE)] == [2, 2]

    run(scenario)


class Hushing(Polls):
    """Answers at once that there is nothing to tell."""

    asked = 0

    @Polls.rpc_vote.override
    async def rpc_vote(self, _request: VoteMessage, _caller: str) -> VotesMessage:
        self.asked += 1
        return VotesMessage()


def test_collectors_that_keep_votes_to_themselves(stations, manifest) -> None:
    """They hold up nobody, and are asked again after a pause only; where there are voters, never."""

    async def scenario() -> None:
        async with stations(4, manifest) as peers:
            group = Group(manifest, peers)
            hushing = [Hushing(group.contexts[number], lambda: group.electorate) for number in (2, 3)]
            group.polls[2:] = hushing
            await group.open()
            for each in hushing:
                each.begin(group.roll)
            everybody = group.electorate
            group.electorate = Electorate(frozenset(peer.peer_id for peer in peers[:2]))
            assert [len(votes) for votes in await group.certify(ONE, ONE)] == [2, 2]
            assert [each.asked for each in hushing] == [0, 0]
            group.electorate = everybody
            assert await group.certify(ONE, ONE) == [(), ()]  # two of four
            assert 0 < sum(each.asked for each in hushing) <= 2 * 2 * (SECONDS / RETRY_SECONDS + 1)

    run(scenario)


def test_who_votes_for_two_states_is_exposed(stations, manifest) -> None:
    """It tells each collector another state; they hear of both from one another, and go on without it."""

    async def scenario() -> None:
        async with stations(3, manifest) as peers:
            group, exposed = Group(manifest, peers), list[str]()

            def expose(proofs: Sequence[Proof]) -> None:
                exposed.extend(proof.offender for proof in proofs)

            for number in range(2):
                group.polls[number] = Polls(group.contexts[number], lambda: group.electorate, expose)
            await group.open()
            liar = group.contexts[2]
            voting = asyncio.create_task(group.certify(ONE, ONE))
            await asyncio.sleep(0)
            for peer, after in zip(peers[:2], (ONE, OTHER), strict=True):
                vote = Vote.sign(group.subject, after, liar.me, liar.key)
                message = VoteMessage(roll=group.roll.id, vote=as_text(vote.data))
                await peers[2].p2p.call(peer.peer_id, Polls.rpc_vote, message)
            assert [len(votes) >= 2 for votes in await voting] == [True, True]
            for number, other in ((0, 1), (1, 0)):
                box, mine = group.polls[number]._boxes[group.roll.id], group.contexts[number]
                vote = Vote.sign(group.subject, ONE, mine.me, mine.key)
                await group.polls[number]._ask(peers[other].peer_id, box, vote)
            assert exposed == [liar.me, liar.me]

    run(scenario)


def test_rounds_before_are_forgotten(stations, manifest) -> None:
    """The last few are kept for members that are late."""

    async def scenario() -> None:
        async with stations(1, manifest) as peers:
            group = Group(manifest, peers)
            for number in range(GROUPS_MAX + 3):
                statement = group.contexts[0].sign_statement(Claim(number, STATE, 10, group.contexts[0].me))
                group.polls[0].begin(Roll.call(group.contexts[0].me, group.contexts[0].key, [statement]))
            assert len(group.polls[0]._boxes) == GROUPS_MAX

    run(scenario)
