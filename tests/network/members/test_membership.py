"""Whom a peer waits for in a round, takes for gone, and lets come."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from dupt_swarm.network.members import membership
from dupt_swarm.network.members.attendance import TOLERATED, TOLERATED_OF_MATES
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import COMING_ROUNDS, Membership
from dupt_swarm.network.p2p.limits import Admission
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.electorate import PROBATION_ROUNDS, Electorate
from tests.support.signed_records import id_of, signed_record

NEWCOMER = "newcomer"
STATE, BEFORE = "ab" * 32, "cd" * 32


@pytest.fixture
def member_of(stations, make_manifest, identities) -> Callable[..., AbstractAsyncContextManager[Membership]]:
    """``async with member_of(others) as member``: of an electorate beside them, at `STATE`, of round 10."""

    @asynccontextmanager
    async def start(others: Collection[str]) -> AsyncIterator[Membership]:
        manifest = make_manifest()
        async with stations(1, manifest) as [peer]:
            member = Membership(manifest, peer.p2p, load_identity(identities[0]))
            member.electorate = Electorate().after([member.peer_id, *others], weak=True)
            member.update(
                RecordUpdate(role="oracle", state="training", round=10, swarm_tokens=1000, state_digest=STATE)
            )
            yield member

    return start


def see(member: Membership, *peers: Peer) -> None:
    """These are there."""
    member.view = View(0.0, peers)


def miss(member: Membership, peer: str, rounds: int) -> None:
    """That many rounds waited for it."""
    for _ in range(rounds):
        member.attendance.ended([peer], [])


async def test_a_member_that_never_comes(member_of, make_peer) -> None:
    """It is waited for as long as others are, and then no longer; yet what it says is listened to."""
    async with member_of(["one", "two"]) as member:
        everybody = ("one", "two", NEWCOMER)
        see(member, *(make_peer(name, state_digest=STATE) for name in everybody))
        member.attendance.ended(["one", "two"], ["one", "two"])
        miss(member, "two", TOLERATED_OF_MATES - 1)
        assert member.here(STATE) == {*everybody}
        miss(member, "two", 1)
        assert member.here(STATE) == {"one", NEWCOMER}
        assert [member.admits(peer) for peer in everybody] == [True, True, True]


async def test_a_newcomer_that_never_comes(member_of, make_peer) -> None:
    """It is not waited for, and what it says is not listened to."""
    async with member_of(["one"]) as member:
        see(member, make_peer("one", state_digest=STATE), make_peer(NEWCOMER, state_digest=STATE))
        miss(member, NEWCOMER, TOLERATED)
        assert member.here(STATE) == {"one"}
        assert (member.admits("one"), member.admits(NEWCOMER)) == (True, False)


async def test_a_peer_that_has_contradicted_itself_is_not_listened_to(member_of, make_peer) -> None:
    """Whoever decides with it or not; only our own identity is not left out by ourselves."""
    async with member_of(["one", "two"]) as member:
        see(member, make_peer("one", state_digest=STATE))
        for peer in ("one", NEWCOMER, member.peer_id, "one"):
            member.expose(peer)
        assert list(member.exposed) == ["one", NEWCOMER]
        assert member._p2p.refused["contradiction"] == 2
        assert [member.admits(peer) for peer in ("one", NEWCOMER, "two")] == [False, False, True]
        assert member.here(STATE) == member.present(STATE) == member.gone == frozenset()
        assert member.unable == {"one"}
        member.attendance.ended([], ["one"])  # there is no way back, also not by coming
        assert not member.admits("one")
        assert member.admits(member.peer_id)


async def test_which_peers_are_here(member_of, make_peer) -> None:
    """Oracles at work on this very state, but for ourselves."""
    async with member_of(["one", "paused"]) as member:
        see(
            member,
            make_peer(member.peer_id, state_digest=STATE),
            make_peer("one", state_digest=STATE),
            make_peer("elsewhere", state_digest=BEFORE),
            make_peer("paused", state_digest=STATE, state="paused"),
            make_peer("first", state_digest=STATE, role="bootstrap", state="serving"),
        )
        assert member.here(STATE) == {"one"}
        assert member.here(BEFORE) == {"elsewhere"}


async def test_which_peers_are_coming(member_of, make_peer) -> None:
    """Oracles at work on one of the last rounds; not who is far behind, ahead, or never comes."""
    async with member_of([]) as member:

        def at(name: str, round: int, **fields: Any) -> Peer:
            found: Peer = make_peer(
                name, round=round, swarm_tokens=100 * round, state_digest=BEFORE, **fields
            )
            return found

        see(
            member,
            *(at("one", 9), at("two", 10 - COMING_ROUNDS), at("far", 10 - COMING_ROUNDS - 1)),
            *(at("ahead", 11), at("here", 10), at("late", 9), at("paused", 9, state="paused")),
            at(member.peer_id, 9),
        )
        miss(member, "late", TOLERATED)
        assert member.coming == {"one", "two"}


async def test_nobody_comes_to_one_that_says_nothing(stations, make_manifest, identities, make_peer) -> None:
    """Before its first record nobody can be behind."""
    manifest = make_manifest()
    async with stations(1, manifest) as [peer]:
        member = Membership(manifest, peer.p2p, load_identity(identities[0]))
        see(member, make_peer("one"))
        assert member.coming == frozenset()


async def test_which_peers_are_gone_and_which_cannot_be_called(
    member_of, make_manifest, identities, make_peer
) -> None:
    """Of the electorate: who says that it goes, and where nobody listens, until it speaks again."""
    manifest, keys = make_manifest(), [load_identity(path) for path in identities[1:4]]
    stopping, dead, stranger = map(id_of, keys)
    async with member_of([stopping, dead]) as member:
        for key, seconds, state in zip(keys, (5, 5, 5), ("stopping", "training", "stopping"), strict=True):
            member.records.take([signed_record(manifest, key, seconds, state=state)])
        assert member.gone == {stopping}
        member.bury(dead)
        member.bury(stranger)
        assert member.gone == {stopping, dead}
        assert [peer.peer_id for peer in member.look().peers] == []
        member.records.take([signed_record(manifest, keys[1], 10)])
        assert member.gone == {stopping}
        see(member, make_peer(dead, reach="client"), make_peer(stranger, reach="client"))
        assert member.unable == {dead}
        member.update(RecordUpdate(reach="client"))
        assert member.unable == {dead, member.peer_id}


async def test_which_records_are_outdated(member_of, make_peer, monkeypatch) -> None:
    """Of whom nobody was found, until there is a newer one; forgotten when no older one can live."""
    now = [1000.0]
    async with member_of([]) as member:
        monkeypatch.setattr(membership, "get_dht_time", lambda: now[0])

        def is_gone(peer: str, time: float) -> bool:
            return member._is_gone(peer, make_peer(peer, time=time).record)

        member.bury("a")
        assert [is_gone("a", time) for time in (999.0, 1000.0, 1000.1)] == [True, True, False]
        assert not is_gone("b", 1000.0)
        now[0] += 2 * member._manifest.limits.record_seconds - 1.0
        member.bury("b")
        assert is_gone("a", 1000.0)
        now[0] += 1.0
        member.bury("c")
        assert {*member._buried} == {"b", "c"}


async def test_whom_the_view_has(member_of, make_manifest, identities) -> None:
    """Nobody who was revoked, though its record lives, and nobody whose claim was found to be false."""

    class Revoked(Admission):
        def objection(self, peer_id: str) -> str:
            return "the invitation has been revoked" if peer_id == other else ""

    key = load_identity(identities[1])
    other = id_of(key)
    async with member_of([other]) as member:
        member.records.take([signed_record(make_manifest(), key, swarm_tokens=1000)])
        view = member.look()
        assert [peer.peer_id for peer in view.peers] == [other] and other in member._p2p.limits.members
        member.distrust(view, (STATE, 1000))
        assert member.look().peers == () and [peer.peer_id for peer in member.living] == [other]
        assert member.gone == frozenset()
        member._admission = Revoked()
        member.look()
        assert member.living == () and other not in member._p2p.limits.members
        assert member.gone == {other}


async def test_former_members_are_voters_still(member_of) -> None:
    """Who is past probation is of the electorate again after one round; a newcomer is not yet."""
    async with member_of(["one"]) as member:
        electorate = member.electorate
        for number in range(PROBATION_ROUNDS):
            electorate = electorate.after([member.peer_id, *([NEWCOMER] if number else [])])
        member.electorate = electorate
        assert electorate.members == {member.peer_id}
        assert member.voters == {member.peer_id, "one"}
        member.look()
        assert [*map(member._p2p.limits.is_trusted, ("one", NEWCOMER))] == [True, False]
        assert NEWCOMER in electorate.services


async def test_where_nobody_decides_yet_all_are_newcomers(member_of, make_peer) -> None:
    """Who never comes is then barred, whoever it is."""
    async with member_of(["one"]) as member:
        member.electorate = Electorate()
        see(member, make_peer("one", state_digest=STATE), make_peer(NEWCOMER, state_digest=STATE))
        assert member.here(STATE) == {"one", NEWCOMER}
        miss(member, NEWCOMER, TOLERATED)
        assert member.here(STATE) == {"one"}
        assert (member.voters, member.gone, member.unable) == (frozenset(),) * 3


# What is wrong with a peer, and whether it is awaited, heard, gone, unable to coordinate.
KNOWN = [
    ({}, (True, True, False, False)),
    ({"absent"}, (False, True, False, False)),
    ({"client"}, (True, True, False, True)),
    ({"exposed"}, (False, False, False, True)),
    ({"dead"}, (True, True, True, False)),
    ({"stranger"}, (True, True, False, False)),
    ({"stranger", "absent"}, (False, False, False, False)),
    ({"stranger", "exposed"}, (False, False, False, False)),
    ({"stranger", "client"}, (True, True, False, False)),
    ({"stranger", "dead"}, (True, True, False, False)),
]


async def test_what_comes_of_what_is_known_of_a_peer(member_of, make_manifest, identities, make_peer) -> None:
    """Whoever is exposed or stays away is not waited for, nor on its way here; members can be gone."""
    key = load_identity(identities[1])
    peer = id_of(key)
    for known, expected in KNOWN:
        async with member_of([] if "stranger" in known else [peer]) as member:
            reach = "client" if "client" in known else "direct"
            member.records.take([signed_record(make_manifest(), key, swarm_tokens=1000)])
            if "dead" in known:
                member.bury(peer)
            if "exposed" in known:
                member.expose(peer)
            if "absent" in known:
                miss(member, peer, TOLERATED)
            see(member, make_peer(peer, reach=reach, round=10, swarm_tokens=1000, state_digest=STATE))
            told = member.here(STATE), member.gone, member.unable
            here, gone, unable = (peer in each for each in told)
            assert (here, member.admits(peer), gone, unable) == expected, known
            see(member, make_peer(peer, round=9, swarm_tokens=900, state_digest=BEFORE))
            assert (peer in member.coming) is here, known
