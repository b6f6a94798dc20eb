"""The votes of a group: which of them make a state the next one."""

import itertools

import pytest
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging.pledge import PLEDGE_BYTES_MAX, Subject, Vote
from dupt_swarm.network.averaging.polls import BallotBox
from dupt_swarm.network.members.attendance import Electorate
from dupt_swarm.replica.signed import sign
from tests.support.sharing_groups import STATE, SWARM, member_keys

ONE, OTHER = "1" * 64, "2" * 64
SUBJECT = Subject(SWARM, "ab" * 20, 3, STATE)
EVERYBODY = Electorate()


@pytest.fixture(scope="module")
def keys() -> dict[str, RSAPrivateKey]:
    """Of five members."""
    return member_keys(5)


def box_of(keys: dict[str, RSAPrivateKey], *states: str) -> BallotBox:
    """The first members have voted for these states."""
    box = BallotBox(SUBJECT, keys)
    for (peer, key), after in zip(keys.items(), states, strict=False):
        box.add(Vote.sign(SUBJECT, after, peer, key))
    return box


def test_more_than_half_is_a_quorum(keys) -> None:
    """Of a group in which nobody votes yet, all count."""
    assert box_of(keys, ONE, ONE).certificate(ONE, EVERYBODY) == ()
    votes = box_of(keys, ONE, ONE, OTHER, ONE).certificate(ONE, EVERYBODY)
    assert [vote.maker for vote in votes] == [list(keys)[place] for place in (0, 1, 3)]
    assert box_of(keys, ONE, ONE, OTHER, ONE).certificate(OTHER, EVERYBODY) == ()


def test_only_voters_who_are_there_count(keys) -> None:
    """Strangers in the group may vote as they like, and voters who are not in it are missed."""
    first, second, *strangers = keys
    outside = [f"Qm{number}" for number in range(2)]
    box = box_of(keys, ONE, ONE, OTHER, OTHER, OTHER)
    assert box.certificate(ONE, Electorate(frozenset({first, second})))
    assert box.certificate(ONE, Electorate(frozenset({first, second, outside[0]})))
    assert not box.certificate(ONE, Electorate(frozenset({first, second, *outside})))
    assert not box.certificate(OTHER, Electorate(frozenset({first, second})))
    assert box.certificate(OTHER, Electorate(frozenset(strangers)))


def test_it_is_known_when_all_is_lost(keys) -> None:
    """As soon as those who have not voted yet are too few."""
    assert not box_of(keys, OTHER, OTHER).is_lost(ONE, EVERYBODY)
    assert box_of(keys, OTHER, OTHER, OTHER).is_lost(ONE, EVERYBODY)


def test_who_votes_for_two_states_counts_for_none(keys) -> None:
    """And both votes are kept: they prove it."""
    box = box_of(keys, ONE, ONE, ONE)
    peer, key = next(iter(keys.items()))
    box.add(Vote.sign(SUBJECT, OTHER, peer, key))
    first, second = box.contradictions[peer]
    assert (first.digest, second.digest) == (ONE, OTHER)
    assert box.certificate(ONE, EVERYBODY) == ()
    box.add(Vote.sign(SUBJECT, ONE, peer, key))
    assert len(box.contradictions) == 1


def test_who_has_come_to_yet_another_state(keys) -> None:
    """Of those whose votes count: not who wants to stay at the state before, nor who contradicts itself."""
    peers = list(keys)
    box = box_of(keys, ONE, OTHER, STATE, OTHER, OTHER)
    box.add(Vote.sign(SUBJECT, ONE, peers[4], keys[peers[4]]))
    assert set(box.others(ONE, EVERYBODY)) == {peers[1], peers[3]}
    assert box.others(OTHER, EVERYBODY) == (peers[0],)
    assert box.others(ONE, Electorate(frozenset(peers[:2]))) == (peers[1],)


def test_votes_about_something_else_are_refused(keys) -> None:
    """Of another swarm, roll, round, state, or of a stranger."""
    box, (peer, key) = BallotBox(SUBJECT, keys), next(iter(keys.items()))
    others = [
        Subject("other-0", *("ab" * 20, 3, STATE)),
        Subject(SWARM, "cd" * 20, 3, STATE),
        Subject(SWARM, "ab" * 20, 4, STATE),
        Subject(SWARM, "ab" * 20, 3, ONE),
    ]
    stranger, stranger_key = next(iter(member_keys(1).items()))
    votes = [Vote.sign(subject, ONE, peer, key) for subject in others]
    for vote in (*votes, Vote.sign(SUBJECT, ONE, stranger, stranger_key)):
        with pytest.raises(ValueError, match="another group"):
            box.add(vote)


def test_votes_are_read_back(keys) -> None:
    """As they were signed, and no others."""
    peer, key = next(iter(keys.items()))
    vote = Vote.sign(SUBJECT, ONE, peer, key)
    assert Vote.read(vote.data) == vote
    good = {"swarm": SWARM, "roll": "ab", "round": 3, "before": STATE, "after": ONE}
    changes = ({"roll": "xy"}, {"round": -1}, {"after": "x"}, {"before": ""}, {"more": 1}, {"round": True})
    for change in changes:
        with pytest.raises(ValueError, match="validation error"):
            Vote.read(sign(key, "vote", good | change))
    with pytest.raises(ValueError, match="another kind"):
        Vote.read(sign(key, "contribution", good))
    with pytest.raises(ValueError, match="too long"):
        Vote.read(bytes(PLEDGE_BYTES_MAX + 1))


def test_two_quorums_share_a_voter() -> None:
    """So two states have one each only if a voter voted for both."""
    voters = frozenset("abcde")
    electorate = Electorate(voters)
    groups = [set(some) for count in range(6) for some in itertools.combinations(voters, count)]
    quorums = [group for group in groups if electorate.is_quorum(group, group)]
    assert quorums
    assert all(one & other for one in quorums for other in quorums)
