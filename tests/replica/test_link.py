"""What may be proposed, what a link must show, and which words contradict each other."""

from dataclasses import replace

import pytest

from dupt_swarm.replica.chain import counted_in
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import BASES_MAX, Accepted, Promise, Word, binding, check_proposal, contradict
from tests.support.words import FIVE, STATE, acceptance, brought, choice, link, promise, proposal

ALL, THREE = choice("abcde"), choice("abc")
AFTER = "cd" * 32
SHOWN = Accepted(1, ALL.id, AFTER)


def test_a_proposal_needs_the_promises_of_a_quorum() -> None:
    """Three of five; or two of three, if two have left."""
    check_proposal(proposal(map(promise, "abc"), THREE), FIVE)
    with pytest.raises(ValueError, match="without the promises of a quorum"):
        check_proposal(proposal(map(promise, "ab"), choice("ab")), FIVE)
    left = [promise(each, leaves=True) for each in "de"]
    check_proposal(proposal([*map(promise, "ab"), *left], choice("ab", "de")), FIVE)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (replace(proposal(map(promise, "abc"), THREE), maker="x"), "who does not coordinate"),
        (proposal(map(promise, "abcc"), THREE), "two promises of one peer"),
        (proposal([promise("d", 7), *map(promise, "abc")], THREE), "of later ballots"),
        (proposal(map(promise, "abc"), choice("abcd")), "that nobody states"),
        (proposal(map(promise, "abcx"), THREE), "nobody whom it is about"),
        (proposal([*map(promise, "abc"), replace(promise("x"), refused=("1",))], choice("abcx")), "decides"),
        (proposal(map(promise, "abcde"), choice("a")), "few of the electorate's"),
        (proposal(map(promise, "abc"), replace(THREE, left=("d",))), "misses who has left"),
        (proposal(map(promise, "abc"), replace(THREE, brought=THREE.brought[::-1])), "not in order"),
        (proposal(map(promise, "abc"), THREE, basis=proposal(map(promise, "abc"), THREE)), "with a basis"),
        (proposal(map(promise, "abc"), replace(THREE, weak=True)), "who does not coordinate"),
        (proposal([promise("d", 0, Accepted(3, "x", "y")), *map(promise, "abc")], THREE), "too late"),
        (proposal([promise("d", 0, replace(SHOWN, ballot=0)), *map(promise, "abc")], THREE), "too late"),
        (proposal([replace(promise(each), brought=None) for each in "abc"], choice("")), "nobody states"),
        (proposal(map(promise, "abc"), replace(THREE, brought=(brought("a"), *THREE.brought))), "in order"),
        (proposal(map(promise, "abcde"), choice("ab")), "few of the electorate's"),
        (proposal([replace(promise("c"), state="ee"), *map(promise, "abde")], THREE), "of another state"),
        (proposal([promise("x", 0, SHOWN), *map(promise, "abc")], choice("abcx")), "stranger that decides"),
        (proposal([promise("a"), promise("b", 1), promise("c", 1)], THREE, 1), "promises of a quorum"),
    ],
)
def test_a_coordinator_that_lies(found, problem: str) -> None:
    """Nobody accepts what it proposes."""
    with pytest.raises(ValueError, match=problem):
        check_proposal(found, FIVE)


def test_a_leave_counts_from_its_ballot_on() -> None:
    """In an earlier one its maker may have promised more to others, who count on it."""
    early = [promise("d", 2, leaves=True), promise("e", 0, leaves=True), *map(promise, "ab")]
    with pytest.raises(ValueError, match="later ballots"):
        check_proposal(proposal(early, choice("ab", "de")), FIVE)


def accepted_by(*makers: str, refused: str = "") -> list[Promise]:
    """Promises for ballot 1 of three; ``makers`` of them have accepted all contributions in ballot 0."""
    known = Accepted(0, ALL.id, AFTER)
    found = [promise(each, 1, known if each in makers else None) for each in "abc"]
    return [replace(each, refused=(ALL.id,)) if each.maker in refused else each for each in found]


def test_what_may_have_been_decided_binds() -> None:
    """One acceptance among the promises of a quorum is enough: the others' may not be shown."""
    promises, basis = accepted_by("b"), proposal(map(promise, "abcde"), ALL)
    assert binding(FIVE, promises) == {Accepted(0, ALL.id, AFTER)}
    check_proposal(proposal(promises, ALL, 1, basis), FIVE)
    for wrong in (
        proposal(promises, THREE, 1),
        proposal(promises, ALL, 1),
        proposal(promises, THREE, 1, basis),
        proposal(promises, THREE, 1, proposal(map(promise, "abc"), THREE)),
        proposal(promises, ALL, 1, proposal(map(promise, "abc"), THREE)),
    ):
        with pytest.raises(ValueError, match="ignores what may have been decided"):
            check_proposal(wrong, FIVE)
    later = proposal([promise(each, 2, SHOWN) for each in "abc"], ALL, 2, basis)
    with pytest.raises(ValueError, match="another ballot's is said to bind"):
        check_proposal(later, FIVE)


def test_what_was_accepted_last_binds() -> None:
    """Whatever was accepted before: it was chosen in the knowledge of that."""
    last = Accepted(1, THREE.id, AFTER)
    promises = [promise("a", 2, Accepted(0, ALL.id, AFTER)), promise("b", 2, last), promise("c", 2)]
    assert binding(FIVE, promises) == {last}


def test_what_half_refuse_for_good_binds_no_longer() -> None:
    """It cannot have been decided, nor ever be; unless one who has left has accepted it."""
    assert binding(FIVE, accepted_by("b", refused="ac"))
    four = Electorate().after("abcd", weak=True)
    assert binding(four, accepted_by("b", refused="ac")) == frozenset()
    leaver = promise("d", 1, Accepted(0, ALL.id, AFTER), leaves=True)
    assert binding(four, [*accepted_by(refused="ac"), leaver])
    gone = [promise(each, 1, leaves=True) for each in "de"]
    assert binding(FIVE, [*accepted_by("b", refused="ac"), *gone]) == frozenset()


def test_whoever_does_not_decide_binds_nobody() -> None:
    """A stranger, and a junior that is one too many, as others have left."""
    assert binding(FIVE, [promise("x", 1, Accepted(9, "1", "2")), *accepted_by("b")]) == {
        Accepted(0, ALL.id, AFTER)
    }
    services = {"a": (100, 1, 300), "b": (100, 1, 300), "c": (100, 1, 300)}
    electorate = Electorate(300, {**services, "d": (4, 297, 300), "e": (4, 298, 300)})
    refusing = [replace(promise(each, 1), refused=(ALL.id,)) for each in "de"]
    gone = replace(promise("c", 1, leaves=True), refused=(ALL.id,))
    assert electorate.deciding("c") == set("abd")
    assert binding(electorate, [*accepted_by("b")[:2], gone, *refusing])


def test_the_basis_of_a_proposal_is_checked_too() -> None:
    """Or a coordinator could invent what binds the next one."""
    invented = proposal(map(promise, "ab"), ALL)
    with pytest.raises(ValueError, match="without the promises of a quorum"):
        check_proposal(proposal(accepted_by("b"), ALL, 1, invented), FIVE)


def test_so_many_proposals_bind_one_another() -> None:
    """With more, nobody could read a report."""
    found = proposal(map(promise, "abcde"), ALL)
    for ballot in range(1, BASES_MAX):
        shown = [promise(each, ballot, Accepted(ballot - 1, ALL.id, AFTER)) for each in "abc"]
        found = proposal(shown, ALL, ballot, found)
    check_proposal(found, FIVE)
    shown = [promise(each, BASES_MAX, Accepted(BASES_MAX - 1, ALL.id, AFTER)) for each in "abc"]
    with pytest.raises(ValueError, match="too many before it"):
        check_proposal(proposal(shown, ALL, BASES_MAX, found), FIVE)


def elsewhere(maker: str) -> Promise:
    """Its last word on another state."""
    return replace(promise(maker, leaves=True), state="ee" * 32)


def later(maker: str) -> Promise:
    """Its last word, in a later ballot."""
    return promise(maker, 1, leaves=True)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (link("ab", ALL), "less than a quorum"),
        (link("abx", ALL), "less than a quorum"),
        (link("abcx", ALL), "signed by strangers"),
        (link("abcd", ALL, left="x"), "signed by strangers"),
        (link("", ALL), "nobody has accepted"),
        (link("aab", ALL), "accepted twice"),
        (link("abc", choice("")), "nothing went"),
        (replace(link("abc", ALL), after="ef" * 32), "something else"),
        (replace(link("abc", ALL), choice=THREE), "something else"),
        (replace(link("abc", ALL), ballot=1), "several ballots"),
        (link("ab", ALL, left="b"), "had not"),
        (replace(link("ab", ALL, left="de"), leaves=(promise("d"), promise("e"))), "a leave that is none"),
        (replace(link("ab", ALL), leaves=tuple(map(elsewhere, "de"))), "a leave that is none"),
        (replace(link("ab", ALL), leaves=tuple(map(later, "de"))), "had not"),
    ],
)
def test_a_link_that_is_none(found, problem: str) -> None:
    """What is missing is said."""
    with pytest.raises(ValueError, match=problem):
        found.check(FIVE)


def test_links() -> None:
    """A quorum makes a strong one, anybody a weak one; the next electorate follows from it."""
    link("abc", ALL).check(FIVE)
    link("ab", ALL, left="de").check(FIVE)
    weak = link("a", choice("ab", weak=True))
    weak.check(FIVE)
    assert weak.electorate(FIVE).members == {"a", "b"}
    assert link("abc", replace(ALL, left=("e",)), left="e").electorate(FIVE).members == set("abcd")


def test_what_is_dropped_does_not_count() -> None:
    """Neither for the electorate that follows nor for what its maker has given."""
    found = link("abc", ALL)
    found = replace(found, acceptances=tuple(replace(each, dropped=("e",)) for each in found.acceptances))
    found.check(FIVE)
    assert found.counted == tuple("abcd") and found.choice.makers == tuple("abcde")
    assert [rounds for rounds, _, _ in found.electorate(FIVE).services.values()] == [5, 5, 5, 5, 4]
    assert counted_in([found]) == dict.fromkeys("abcd", 10)


def test_where_branches_part() -> None:
    """A strong link before a weak one, then more signatures of the electorate, then the digest."""
    strong, two = link("abc", ALL), link("de", choice("de", weak=True), after="ff" * 32)
    one, strangers = link("d", choice("d", weak=True)), link("xyz", choice("xyz", weak=True), after="f0" * 32)
    found = sorted([strong, strangers, two, one], key=lambda each: each.worth(FIVE))
    assert found == [strangers, one, two, strong]


@pytest.mark.parametrize(
    ("one", "other", "lies"),
    [
        (proposal([], ALL), proposal([], THREE), True),
        (proposal([], ALL), proposal([], THREE, 1), False),
        (proposal([], replace(ALL, weak=True)), proposal([], THREE), False),
        (acceptance("a", ALL), acceptance("a", THREE), True),
        (acceptance("a", ALL), acceptance("a", ALL, after="ee" * 32), True),
        (acceptance("a", ALL), acceptance("a", THREE, 1), False),
        (acceptance("a", ALL), acceptance("b", THREE), False),
        (promise("a", 1), acceptance("a", ALL), True),
        (promise("a", 1), acceptance("a", ALL, 1), False),
        (promise("a", 2, SHOWN), acceptance("a", ALL, 1), False),
        (promise("a", 2, SHOWN), acceptance("a", THREE, 1), True),
        (promise("a", 3, SHOWN), acceptance("a", ALL, 2), True),
        (promise("a", 3, SHOWN), acceptance("a", ALL, 0), False),
        (replace(promise("a", 3), refused=(ALL.id,)), acceptance("a", ALL, 5), True),
        (promise("a", 1, SHOWN, leaves=True), acceptance("a", ALL, 1), False),
        (promise("a", 1, leaves=True), acceptance("a", ALL, 1), True),
        (promise("a", 1, leaves=True), acceptance("a", replace(ALL, weak=True), 5), False),
        (promise("a", 1, leaves=True), promise("a", 2), True),
        (promise("a", 1, leaves=True), promise("a", 1), False),
        (replace(promise("a", 1), state="ee"), acceptance("a", ALL), False),
    ],
)
def test_words_that_contradict_each_other(one: Word, other: Word, lies: bool) -> None:
    """In either order; those of an honest peer never do."""
    assert contradict(one, other) == contradict(other, one) == lies


def test_a_choice_has_one_name() -> None:
    """Which says everything that matters for the state that follows."""
    names = {each.id for each in (ALL, THREE, replace(ALL, left=("a",)), replace(ALL, weak=True))}
    assert len(names) == 4
    assert choice("abc").id == THREE.id
    assert STATE not in names and brought("a") in ALL.brought
