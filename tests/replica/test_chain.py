"""The chain of rounds: whose links are followed, and from where."""

from dataclasses import replace
from hashlib import sha256

import pytest

from dupt_swarm.replica.chain import FINAL_FIRST_ROUNDS, Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Link
from tests.support.words import FIVE, STATE, acceptance, choice, promise

FIRST = STATE


def links(*rounds: str, first: str = FIRST, weak: bool = False) -> list[Link]:
    """One for each round, in which the contributions of these counted, who have all accepted it."""
    found, state = [], first
    for makers in rounds:
        chosen = choice(makers, weak=weak)
        after = sha256(f"{state} {makers} {weak}".encode()).hexdigest()
        said = tuple(replace(acceptance(each, chosen, after=after), state=state) for each in makers)
        found.append(Link(state, 0, chosen, after, (), said))
        state = after
    return found


@pytest.fixture
def chain() -> Chain:
    """Of five, without a round."""
    return Chain(FIRST, FIVE)


def test_links_are_followed_from_a_state_that_we_know(chain) -> None:
    """Each is verified by the electorate of the state before it."""
    found = links("abcde", "abcd", "abc")
    assert chain.follow(found) == []
    assert chain.head == found[-1].after
    assert chain.links == found and found[1].after in chain
    assert chain.electorate.members == set("abcde")


def test_what_does_not_follow_is_not_followed(chain) -> None:
    """Whoever sends it is told why, and nothing changes: not even by the sound links before it."""
    good, short, stranger = links("abcde"), links("abcde", "ab"), links("abcde", "xyz")
    elsewhere = links("abc", first="99" * 32)
    gap = [links("abcde", "abcd", "abc")[number] for number in (0, 2)]
    for wrong in (short, stranger, elsewhere, gap):
        with pytest.raises(ValueError, match="link"):
            chain.follow(wrong)
        assert chain.links == []
    chain.follow(good)
    with pytest.raises(ValueError, match="less than a quorum"):
        chain.follow(short)


@pytest.mark.parametrize("to", ["the first state", "ours", "where it leaves", "theirs"])
def test_links_that_lead_back_are_not_followed(chain, to: str) -> None:
    """Anybody can sign weak ones. Whoever sends such is told so, and nothing changes."""
    ours = links("abcde", "abcd", weak=True)
    chain.follow(ours)
    on = links("x", "y", "z", first=chain.head, weak=True)
    states = {"the first state": FIRST, "ours": ours[0].after, "where it leaves": chain.head}
    after = states.get(to, on[0].after)
    on[-1] = replace(on[-1], after=after, acceptances=(replace(on[-1].acceptances[0], after=after),))
    with pytest.raises(ValueError, match="lead back"):
        chain.follow(on)
    assert chain.links == ours
    chain.cut(FIRST)
    assert chain.head == FIRST


def test_a_strong_branch_wins_over_a_weak_one(chain) -> None:
    """However long the weak one has become; our links of that one are given back."""
    weak = links("d", "d", "d", weak=True)
    chain.follow(weak)
    strong = links("abc")
    assert chain.follow(strong) == weak
    assert chain.links == strong and weak[0].after not in chain
    assert chain.follow(weak) == []
    assert chain.links == strong


def test_what_is_old_is_final(monkeypatch) -> None:
    """Whoever decided long ago, and is not there any more, does not decide again."""
    monkeypatch.setattr("dupt_swarm.replica.chain.FINAL_ROUNDS", 3)
    weak, strong = links(*"dddd", weak=True), links("abc")
    chain = Chain(FIRST, FIVE)
    chain.follow(weak)
    assert chain.follow(strong) == []
    assert chain.links == weak
    chain.cut(weak[2].after)
    assert chain.follow(strong) == weak[:3]


def test_a_young_swarm_is_not_taken_over() -> None:
    """Where nobody decides yet anybody can begin a branch: after a few rounds that is too late."""
    ours, theirs = links(*"a" * FINAL_FIRST_ROUNDS, weak=True), links(*"xx", weak=True)
    lower, greater = sorted((ours, theirs), key=lambda each: each[0].after)
    chain = Chain(FIRST, Electorate())
    chain.follow(lower)
    assert chain.follow(greater) == lower
    long = links(*"a" * (FINAL_FIRST_ROUNDS + 1), weak=True)
    for name in "bcdefghijklmnopqrstu":
        other = links(name, weak=True)
        chain = Chain(FIRST, Electorate())
        chain.follow(long)
        assert chain.follow(other) == [] and chain.links == long


def test_only_members_join_a_weak_link(chain) -> None:
    """Strangers' signatures, and those of something else, would make it one that nobody can verify."""
    [link] = links("ab", weak=True)
    chain.follow([link])
    [said] = {replace(link.acceptances[0], maker="c")}
    for more in (replace(said, maker="0"), replace(said, dropped=("b",))):
        other = replace(link, acceptances=(more,))
        chain.follow([other, *links("d", first=link.after, weak=True)])
        assert chain.links[0] == link
        chain.cut(link.after)
    chain.follow([replace(link, acceptances=(*link.acceptances, said))])
    assert [each.maker for each in chain.links[0].acceptances] == ["a", "b", "c"]


def test_what_leads_where_ours_leads_is_verified_too(chain) -> None:
    """Else our own link would get signatures of something else, and nobody could verify it any more."""
    ours = links("ab", "ab", weak=True)
    chain.follow(ours)
    first, second = ours
    said = replace(second.acceptances[0], maker="c")
    otherwise = replace(said, state="99" * 32)
    elsewhere = replace(second, state=otherwise.state, acceptances=(otherwise,))
    for wrong in (replace(second, acceptances=(said, replace(said, maker="d", after="ee" * 32))), elsewhere):
        with pytest.raises(ValueError, match="link"):
            chain.follow([first, wrong])
        assert chain.links == ours
    chosen = choice("ac", weak=True)
    said = replace(first.acceptances[0], maker="c", choice=chosen.id)
    chain.follow([replace(first, choice=chosen, acceptances=(said,)), second])
    assert chain.links == ours and chain.between(chain.head, chain.head) == []


def test_of_two_weak_branches_the_one_with_more_signatures_wins(chain) -> None:
    """As soon as enough are known: they may come later."""
    one, two = links("ab", weak=True), links("cde", weak=True)
    few = [replace(two[0], acceptances=two[0].acceptances[:1])]
    chain.follow(one)
    assert chain.follow(few) == []
    assert chain.follow(two) == one
    chain = Chain(FIRST, FIVE)
    chain.follow(few)
    chain.follow(two)
    assert chain.links[0].makers == set("cde")
    assert chain.follow(one) == []


def test_peers_find_the_last_state_that_both_know(chain) -> None:
    """With few digests, however long the chain is, and get the links after it."""
    other = Chain(FIRST, FIVE)
    found = links(*["abcde"] * 100)
    chain.follow(found)
    other.follow(found[:60])
    assert chain.since(other.known()) == found[60:]
    assert len(chain.known()) < 24
    assert other.since(chain.known()) and chain.since(["99"]) == []
    assert other.follow(chain.since(other.known())) == []
    assert other.head == chain.head


def test_a_newcomer_starts_from_what_it_trusts(chain) -> None:
    """From a state in the middle, with that state's electorate."""
    found = links("abcde", "abcd", "abc", "abc")
    chain.follow(found)
    late = Chain(found[1].after, found[1].electorate(found[0].electorate(FIVE)))
    late.follow(chain.since(late.known()))
    assert late.head == chain.head and late.electorate == chain.electorate
    assert promise("a").maker in late.electorate
