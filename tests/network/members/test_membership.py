"""Whom a peer waits for in a round, and lets come."""

import asyncio
from collections.abc import Callable, Collection

import pytest

from dupt_swarm.network.members.attendance import TOLERATED, TOLERATED_OF_MATES
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import WARY_ROUNDS, Membership
from dupt_swarm.replica.voters import Voters

NEWCOMER = "newcomer"


@pytest.fixture
def with_member(stations, make_manifest, identities) -> Callable[..., None]:
    """Runs a test with a voter beside others that are at work."""

    def run(test: Callable[[Membership], None], others: Collection[str]) -> None:
        async def scenario() -> None:
            manifest = make_manifest()
            async with stations(1, manifest) as [peer]:
                member = Membership(manifest, peer.p2p, load_identity(identities[0]))
                member.reach(Voters().after(1, [member.peer_id, *others]))
                member.at_work = frozenset({member.peer_id, *others, NEWCOMER})
                test(member)

        asyncio.run(asyncio.wait_for(scenario(), 60))

    return run


def miss(member: Membership, peer: str, rounds: int) -> None:
    """That many rounds waited for it."""
    for _ in range(rounds):
        member.attendance.ended([peer], [])


def test_a_voter_that_never_comes(with_member) -> None:
    """It is waited for as long as others are; then no longer, if the rest can decide without it."""

    def check(member: Membership) -> None:
        everybody = ("one", "two", NEWCOMER)
        member.attendance.ended(["one", "two"], ["one", "two"])
        miss(member, "two", TOLERATED_OF_MATES - 1)
        assert member.expected(everybody) == set(everybody)
        miss(member, "two", 1)
        assert member.expected(everybody) == {"one", NEWCOMER}
        assert [member.admits(peer) for peer in everybody] == [True, False, True]

    with_member(check, ["one", "two"])


def test_a_voter_without_whom_nothing_can_be_decided(with_member) -> None:
    """It is waited for and may come whatever it did before; a newcomer may not."""

    def check(member: Membership) -> None:
        for peer in ("one", NEWCOMER):
            miss(member, peer, TOLERATED_OF_MATES)
        assert member.expected(["one", NEWCOMER]) == {"one"}
        assert (member.admits("one"), member.admits(NEWCOMER)) == (True, False)

    with_member(check, ["one"])


def test_newcomers_after_a_round_that_did_harm(with_member) -> None:
    """Voters alone end the next rounds; rounds that fail do not count, and then newcomers may come again."""

    def check(member: Membership) -> None:
        assert member.admits(NEWCOMER)
        member.note_attempt(found_quorum=True, rejected=True)
        for _ in range(WARY_ROUNDS):
            assert member.expected(["one", NEWCOMER]) == {"one"}
            assert [member.admits(peer) for peer in (member.peer_id, "one", NEWCOMER)] == [True, True, False]
            member.note_attempt(found_quorum=False)
            member.note_attempt(found_quorum=True)
        assert member.expected(["one", NEWCOMER]) == {"one", NEWCOMER}
        assert member.admits(NEWCOMER)

    with_member(check, ["one"])


def test_where_nobody_votes_yet_all_are_newcomers(with_member) -> None:
    """A round that did harm bars nobody then."""

    def check(member: Membership) -> None:
        member.reach(Voters())
        member.note_attempt(found_quorum=True, rejected=True)
        assert member.expected(["one", NEWCOMER]) == {"one", NEWCOMER}
        miss(member, NEWCOMER, TOLERATED)
        assert member.expected(["one", NEWCOMER]) == {"one"}

    with_member(check, ["one"])
