"""Which state is followed, in tables."""

import pytest

from dupt_swarm.network.states.sync import HEARD_MAX, Believed, Claims
from dupt_swarm.node.messages import StateName
from dupt_swarm.node.view import Peer


def name(round: int, letter: str = "a") -> StateName:
    return StateName(round, 100 * round, letter * 64)


@pytest.fixture
def heard(make_peer):
    """``heard(claims, a=name(3), b=name(4))``: these peers are there now."""

    def hear(claims: Claims, **told: StateName) -> None:
        claims.hear(_peer(make_peer, peer, state) for peer, state in told.items())

    return hear


def _peer(make_peer, peer: str, state: StateName) -> Peer:
    fields = {"round": state.round, "swarm_tokens": state.swarm_tokens, "state_digest": state.digest}
    found: Peer = make_peer(peer, **fields)
    return found


def at(*states: StateName) -> Claims:
    """A peer that was at these states, and is at the last one."""
    claims = Claims()
    for state in states:
        claims.reach(state)
    return claims


OTHERS = Believed(frozenset("abcd"), backwards=True)


def test_more_than_half_are_followed(heard) -> None:
    """Of four others, three; where our own word counts too, three of five."""
    mine, next = name(3), name(4, "b")
    claims = at(mine)
    heard(claims, a=next, b=next, c=mine, d=mine)
    assert claims.ahead(mine, OTHERS) is None
    heard(claims, a=next, b=next, c=next, d=mine)
    assert claims.ahead(mine, OTHERS) == next
    assert claims.ahead(mine, Believed(frozenset("abcd"), mine=True)) == next
    assert claims.ahead(mine, Believed(frozenset("abcde"), mine=True)) is None


def test_strangers_do_not_count(heard) -> None:
    """However many there are, and whatever they claim."""
    mine, lie = name(3), name(1 << 40, "f")
    claims = at(mine)
    heard(claims, **dict.fromkeys("xyzvw", lie), a=mine)
    assert claims.ahead(mine, OTHERS) is None
    assert claims.ahead(mine, Believed()) is None


def test_what_they_said_before_counts(heard) -> None:
    """Rounds may be shorter than the time in which all records are read."""
    mine, fourth, fifth = name(3), name(4, "b"), name(5, "c")
    claims = at(mine)
    heard(claims, a=fourth, b=fourth, c=mine, d=mine)
    heard(claims, a=fifth, b=fifth, c=fourth, d=mine)
    assert claims.ahead(mine, OTHERS) == fourth
    heard(claims, a=fifth, b=fifth, c=fifth, d=fourth)
    assert claims.ahead(mine, OTHERS) == fifth
    claims.reach(fifth)
    assert claims.ahead(fifth, OTHERS) is None


def test_nobody_goes_back(heard) -> None:
    """Those who are a little behind are many for a moment; at a state that we were at."""
    past, mine = name(3), name(4, "b")
    claims = at(past, mine)
    heard(claims, **dict.fromkeys("abcd", past))
    assert claims.ahead(mine, OTHERS) is None


def test_another_branch_is_followed(heard) -> None:
    """Also to an earlier round: more voters are there."""
    branch = name(3, "c")
    claims = at(name(2), name(3), name(4, "b"))
    heard(claims, **dict.fromkeys("abcd", branch))
    assert claims.ahead(name(4, "b"), OTHERS) == branch
    assert claims.ahead(name(4, "b"), Believed(frozenset("abcd"))) == branch


def test_peers_that_are_only_trusted_may_be_behind(heard) -> None:
    """Initial peers are not followed to a round of which we do not know whether it is another branch."""
    claims = at(name(40, "b"))
    heard(claims, **dict.fromkeys("abcd", name(30, "c")))
    assert claims.ahead(name(40, "b"), Believed(frozenset("abcd"))) is None
    assert claims.ahead(name(40, "b"), OTHERS) == name(30, "c")


def test_of_equals_all_choose_the_same(heard) -> None:
    """The most voters, then the later round, then the digest; whoever has it stays."""
    ours, theirs = name(5, "a"), name(5, "b")
    one, two = at(ours), at(theirs)
    heard(one, b=ours, c=theirs, d=theirs)
    heard(two, a=ours, b=ours, d=theirs)
    assert one.first_of_equals(ours, Believed(frozenset("bcd"), mine=True)) == theirs
    assert two.first_of_equals(theirs, Believed(frozenset("abd"), mine=True)) is None
    later = name(6, "a")
    heard(one, b=ours, c=theirs, d=later)
    assert one.first_of_equals(ours, Believed(frozenset("bcd"))) == later
    heard(one, b=ours, c=theirs, d=later)
    assert one.first_of_equals(ours, Believed(frozenset("bcd"), mine=True)) is None


def test_what_is_heard_is_bounded(heard) -> None:
    """Some voter may claim another state each time."""
    claims = at(name(3))
    for round in range(HEARD_MAX + 10):
        heard(claims, a=name(round, "f"))
    assert len(claims._heard) == HEARD_MAX
