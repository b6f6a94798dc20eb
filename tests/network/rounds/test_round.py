"""How members decide, a step at a time; what happens in any order is tested by simulation."""

from dataclasses import replace
from functools import partial

import pytest

from dupt_swarm.network.rounds.ballots import AHEAD_MAX, FAILED_MAX, Ballots
from dupt_swarm.network.rounds.reports import Answer, Report
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.rounds.stock import MAKERS_MAX, Stock
from dupt_swarm.network.rounds.voice import Pledged, Voice
from dupt_swarm.replica.link import Acceptance, Accepted, Brought, Choice, Link, Proposal, coordinator_of
from tests.support.members import PACE, Members, after
from tests.support.words import STATE, brought, choice, promise, proposal


def the_link(members: Members, names: str) -> Link:
    """The one that all of these know."""
    [link] = members.links(names)
    assert link is not None
    link.check(members.electorate)
    assert link.after == after(link.choice)
    return link


def without(name: str, names: str = "abcde") -> str:
    """The others."""
    return "".join(sorted(set(names) - {name}))


def test_all_come_and_decide() -> None:
    """In the first ballot, with everybody's contribution, and more than half have signed."""
    members = Members("abcde")
    members.bring("abcde")
    members.talk("abcde")
    link = the_link(members, "abcde")
    assert link.ballot == 0 and not link.choice.weak
    assert link.choice.makers == tuple("abcde") and len(link.makers) >= 3


def test_a_newcomer_brings_and_does_not_decide() -> None:
    """Its contribution is on the list, and its signature on no link."""
    members = Members("abc", strangers="x")
    members.bring("abcx")
    members.talk("abcx")
    link = the_link(members, "abcx")
    assert link.choice.makers == tuple("abcx") and "x" not in link.makers


def test_a_newcomer_that_refuses_takes_no_part() -> None:
    """Else it could keep all other newcomers out, or what the electorate brings; and sixty of them would
    fill the answers, of which no member could read any then."""
    members = Members("abc", strangers="xy")
    refusing = Pledged(refused=frozenset({"0" * 64}))
    members.rounds["x"] = Round(Ballots(Voice("x"), STATE, members.electorate, PACE, 0.0, refusing))
    members.bring("abcxy")
    members.wait("abcxy", PACE.gather + 5)
    assert the_link(members, "abcy").choice.makers == tuple("abcy")


def test_the_electorate_may_go_on_by_itself() -> None:
    """After a round that did harm, where newcomers had a part in it, it takes what they bring no more."""
    members = Members("abc", strangers="xy", wary=True)
    members.bring("abcxy")
    members.talk("abcxy")
    assert the_link(members, "abcxy").choice.makers == tuple("abc")
    roll = members.rounds[members.coordinator(0)].roll
    assert roll is not None and [each.maker for each in roll.promises] == [*"abc"]


def test_what_is_retracted_is_not_brought() -> None:
    """Nobody's roll has it, and whoever has retracted waits for nobody, until there is another."""
    members = Members("abc")
    members.bring("abc")
    members.rounds["a"].retract()
    members.talk("abc", there="abc")
    assert members.links("abc") == {None}
    members.bring("a")
    members.talk("abc", there="abc")
    assert the_link(members, "abc").choice.makers == tuple("abc")


def test_the_last_ones_are_waited_for() -> None:
    """As long as they are seen to be on their way, and `gather` has not passed."""
    members = Members("abcde")
    others = without(members.coordinator(1))
    members.bring(others)
    members.talk(others, there="abcde")
    assert members.links(others) == {None}
    members.wait(others, PACE.gather + 6, there="abcde")
    assert the_link(members, others).choice.makers == tuple(others)


def test_a_roll_is_not_closed_before_somebody_brings_something() -> None:
    """One who decides alone may coordinate long before its own contribution is ready, which then counts."""
    members = Members("a")
    members.wait("a", PACE.gather + 2)
    members.bring("a")
    members.talk("a", times=2)
    assert the_link(members, "a").ballot == 0


def test_what_few_hold_is_left_out_when_time_is_up() -> None:
    """It counts in the next round: nobody can compute a state from what is nowhere."""
    members = Members("abc")
    late = members.coordinator(1)

    def holds(name: str, each: Brought) -> bool:
        return name == late or each.maker != late

    members.bring("abc")
    members.wait("abc", PACE.exchange - 2, holds=holds)
    assert members.links("abc") == {None}
    members.wait("abc", 8, holds=holds)
    assert the_link(members, "abc").choice.makers == tuple(without(late, "abc"))


def test_a_coordinator_that_is_gone_is_passed_over() -> None:
    """After the time for a peer that does not answer, the next one has its turn."""
    members = Members("abcde")
    others = without(members.coordinator(0))
    members.bring(others)
    members.wait(others, 3 * PACE.silence)
    link = the_link(members, others)
    assert link.ballot == 1 and link.choice.makers == tuple(others)


def test_a_list_that_was_accepted_is_decided_again() -> None:
    """Two of three have accepted it, and the one that counted them has gone before it told anybody.

    Of the two that are left one has accepted; the other could choose something else, if it were not bound.
    """
    members = Members("abc")
    first = members.coordinator(0)
    one, other = list(without(first, "abc"))
    members.bring("abc")
    while members.rounds[one].to_judge is None:
        members.talk("abc", times=1)
    members.talk([first, one], there="abc", times=1)
    members.rounds[first].consider(members.now, ())
    known = members.rounds[first].link
    assert known is not None and members.links([one, other]) == {None}
    assert members.rounds[one].report().acceptance is not None
    assert members.rounds[other].report().acceptance is None
    members.rounds[other].bring(brought(other, 99), members.now)
    members.wait([one, other], 4 * PACE.silence)
    link = the_link(members, one + other)
    assert link.ballot > known.ballot
    assert link.choice == known.choice and link.after == known.after


@pytest.mark.parametrize("leaving", [1, 2])
def test_a_peer_that_leaves_is_not_needed_for_a_quorum(leaving: int) -> None:
    """Of three, two go to bed: the third decides by itself, and they are of the next electorate no more."""
    members = Members("abc")
    last = members.coordinator(0)
    gone = sorted(set("abc") - {last})[:leaving]
    for name in gone:
        members.rounds[last].note(members.rounds[name].leave(), members.now)
    there = sorted(set("abc") - set(gone))
    members.bring("".join(there))
    members.talk(there)
    link = the_link(members, "".join(there))
    assert not link.choice.weak and link.ballot == 0
    assert link.electorate(members.electorate).members == set(there)


def test_a_peer_that_has_left_signs_nothing_more() -> None:
    """Whatever it is shown; but what it brings, if it comes back while the others are still there, counts."""
    members = Members("abc")
    first = members.coordinator(0)
    leaver = next(name for name in "abc" if name != first)
    word = members.rounds[leaver].leave().promise
    for name in without(leaver, "abc"):
        members.rounds[name].note(members.rounds[leaver].leave(), members.now)
    members.bring("abc")
    members.talk("abc")
    link = the_link(members, "abc")
    assert leaver not in link.makers and link.choice.left == (leaver,)
    assert link.counted == tuple("abc")
    assert members.rounds[leaver].leave().promise == replace(word, brought=brought(leaver))


@pytest.mark.parametrize("names", ["abc", "abcd"])
def test_what_half_refuse_is_not_decided(names: str) -> None:
    """It would do harm: the next list has the electorate's contributions alone, and another is what it is."""
    members = Members(names, strangers="x")
    members.refusing = set(without(members.coordinator(0), names)[:2])
    members.bring(names + "x")
    while not all(members.rounds[name].report().refuses for name in members.refusing):
        members.talk(names + "x", times=1)
    assert members.links(names + "x") == {None}
    members.refusing = set()
    members.wait(names + "x", 2 * PACE.silence)
    assert the_link(members, names).choice.makers == tuple(names)


@pytest.mark.parametrize("accepts", [False, True])
def test_newcomers_that_judge_stop_nobody(accepts: bool) -> None:
    """However many refuse what is proposed, or accept it: they decide nothing, and are in no link."""
    members = Members("abc", strangers="wxyz")

    def judging(name: str) -> Report:
        said = Round.report(members.rounds[name])
        choice = members.rounds[name].proposed
        if choice is None or not accepts:
            return replace(said, refuses=True)
        return replace(said, acceptance=Acceptance(name, STATE, 0, choice.id, after(choice)))

    for name in "wxyz":
        members.rounds[name].report = partial(judging, name)  # type: ignore[method-assign]
    members.bring("abcwxyz")
    members.talk("wxyzabc", times=8)
    assert the_link(members, "abc").ballot == 0


def test_one_who_refuses_stops_nobody() -> None:
    """More than half accept."""
    members = Members("abc")
    members.refusing = {next(name for name in "abc" if name != members.coordinator(0))}
    members.bring("abc")
    members.talk("abc")
    assert members.refusing.isdisjoint(the_link(members, "abc").makers)


@pytest.mark.parametrize("names", ["abcde", "abcdexy"])
def test_one_who_refuses_beforehand_stops_nobody(names: str) -> None:
    """Whatever the roll leads to, or whoever is new."""
    members = Members("abcde", strangers=names[5:])
    liar = next(name for name in "abcde" if name != members.coordinator(0))
    ballots, made = members.rounds[liar].ballots, [choice(names), choice(without(liar, names))]
    ballots._pledge(refused=frozenset(each.id for each in made))
    members.bring(names)
    members.talk(names, times=8)
    assert the_link(members, without(liar)).choice.makers == tuple(names)


@pytest.mark.parametrize("names", ["abc", "abcde", "abcdefg"])
def test_what_only_its_coordinator_has_binds_nobody(names: str) -> None:
    """It proposes what it gives to nobody, and then says in all ballots that it has accepted that."""
    members = Members(names)
    liar = members.coordinator(0)
    ballots = members.rounds[liar].ballots
    is_held = ballots._is_held
    ballots._is_held = lambda brought: brought.maker == liar or is_held(brought)  # type: ignore[method-assign]
    members.bring(names)
    ballots.stock.held.add(brought(liar).digest)
    honest = without(liar, names)
    while None in members.links(honest) and members.now < 120.0:
        members.wait(names, 1.0, holds=lambda name, each: each.maker != liar or name == liar)
    assert not the_link(members, honest).choice.weak


def test_what_was_accepted_once_is_not_refused_later() -> None:
    """Another choice was accepted between: its word of then and of now would contradict each other."""
    members = Members("abcde")
    coordinators = [members.coordinator(ballot) for ballot in range(3)]
    ballots = members.rounds[next(name for name in "abcde" if name not in coordinators)].ballots
    members.bring("abcde")
    for ballot, makers in enumerate(("abcde", "abcd", "abcde")):
        shown = proposal([promise(each, ballot) for each in "abcde"], choice(makers), ballot)
        ballots.hear(coordinators[ballot], Answer(ballot, proposal=shown), members.now)
        for each in shown.choice.brought:
            ballots.stock.held.add(each.digest)
        assert ballots.to_judge == shown.choice
        ballots.judge(shown.choice, after(shown.choice), accepts=ballot < 2)
        ballots.give_up(members.now)
    assert ballots._pledged.once == {choice("abcde").id, choice("abcd").id}
    assert not ballots._pledged.refused


@pytest.mark.parametrize("weak", [False, True])
def test_one_who_says_that_others_do_not_count_stops_nobody(weak: bool) -> None:
    """It accepts the same state, and is left out of the link, which would be none with it."""
    members = Members("abc")
    there = "ab" if weak else "abc"
    liar = next(name for name in there if name != members.coordinator(0))
    round = members.rounds[liar]
    judge = round.judge
    round.judge = lambda choice, after, **how: judge(choice, after, ("zz",), **how)  # type: ignore[method-assign]
    members.bring(there)
    for _ in range(300):
        honest = set(there) - {liar}
        if None not in members.links(honest):
            break
        members.now += 1.0
        for name in there:
            members.rounds[name].consider(members.now, set(there) - {name}, gone={"c"} if weak else ())
        members.talk(there, times=1)
    for link in members.links(honest):
        assert link is not None
        link.check(members.electorate)
        assert liar not in link.makers and link.choice.weak is weak


def test_a_proposal_of_an_earlier_ballot_is_not_taken() -> None:
    """Whoever coordinates a later one could have what was accepted since forgotten, and two links made."""
    members = Members("abcde")
    members.bring("abcde")
    first, second = members.coordinator(0), members.coordinator(1)
    member = next(name for name in "abcde" if name not in (first, second))
    members.talk(without(member))
    proposal = members.rounds[first].answer().proposal
    assert proposal is not None and proposal.ballot == 0
    ballots = members.rounds[member].ballots
    ballots.give_up(members.now)
    assert ballots.coordinator == second
    for each in proposal.choice.brought:
        members.rounds[member].stock.held.add(each.digest)
    ballots.hear(second, Answer(1, closed=True, proposal=proposal), members.now)
    assert ballots.here.proposed is None and ballots.to_judge is None


def test_one_who_accepts_as_if_it_were_weak_stops_nobody() -> None:
    """Such an acceptance is in no link of a quorum, which would be none with it."""
    members = Members("abc")
    liar = next(name for name in "abc" if name != members.coordinator(0))
    report = members.rounds[liar].report

    def weakly() -> Report:
        said = report()
        return replace(said, acceptance=said.acceptance and replace(said.acceptance, weak=True))

    members.rounds[liar].report = weakly  # type: ignore[method-assign]
    members.bring("abc")
    members.talk((liar, *without(liar, "abc")), there="abc")
    assert the_link(members, without(liar, "abc")).makers == set(without(liar, "abc"))


def test_one_who_is_far_ahead_takes_nobody_along() -> None:
    """Most of the others do, but for strangers; and nobody so far that no ballot comes after it."""
    members = Members("abcde", strangers="x")
    first = members.rounds[members.coordinator(0)]

    def say(name: str, ballot: int) -> int:
        report = members.rounds[name].report()
        first.note(replace(report, promise=replace(report.promise, ballot=ballot)), 0.0)
        return first.ballots.ballot

    one, two, three, _ = list(without(members.coordinator(0)))
    assert [say(name, 7) for name in (one, "x", two)] == [0, 0, 0]
    assert "x" not in first.ballots._farther
    assert say(three, 9) == 7
    assert [say(name, 8 + AHEAD_MAX) for name in (one, two, three)] == [7, 7, 7]


NOTHING = Accepted(0, "1" * 64, "2" * 64)
LAST_WORDS = {
    "a stranger's": ("x", Pledged()),
    "what nobody has proposed": ("a", Pledged(accepted=NOTHING)),
    "a later ballot's": ("a", Pledged(5)),
}


@pytest.mark.parametrize("which", LAST_WORDS)
def test_a_last_word_that_does_not_count(which: str) -> None:
    """Nobody has left."""
    members = Members("abc", strangers="x")
    name, kept = LAST_WORDS[which]
    liar = Ballots(Voice(name), STATE, members.electorate, PACE, 0.0, kept)
    liar.leave()
    for each in without(name, "abc"):
        members.rounds[each].note(liar.report(), 0.0)
    members.bring("abc")
    members.talk("abc")
    assert the_link(members, "abc").choice == choice("abc")


def test_one_who_comes_though_it_has_left_stops_nobody() -> None:
    """Neither what it brings nor its signature is in the link, which would be none with it."""
    members = Members("abc")
    name = without(members.coordinator(0), "abc")[0]
    liar = Ballots(Voice(name), STATE, members.electorate, PACE, 0.0)
    liar.leave()
    for each in without(name, "abc"):
        members.rounds[each].note(liar.report(), 0.0)
    members.bring("abc")
    members.talk((name, *without(name, "abc")))
    assert the_link(members, without(name, "abc")).choice.makers == tuple(without(name, "abc"))


FEW, THREE = (proposal(map(promise, names), choice("abc")) for names in ("ab", "abc"))


@pytest.mark.parametrize(
    ("accepted", "basis"),
    [(NOTHING, None), (NOTHING, THREE), (Accepted(0, choice("abc").id, "2" * 64), FEW)],
    ids=["without a proposal", "with another", "with one that is none"],
)
def test_what_was_accepted_must_be_shown(accepted: Accepted, basis: Proposal | None) -> None:
    """Else whoever coordinates would be bound to propose what it cannot."""
    members = Members("abcde")
    name = without(members.coordinator(0))[0]
    kept = Pledged(accepted=accepted, basis=basis)
    members.rounds[name] = Round(Ballots(Voice(name), STATE, members.electorate, PACE, 0.0, kept))
    members.rounds[name].ballots._go_to(1, 0.0)
    for each in without(name):
        members.rounds[each].ballots.give_up(0.0)
    members.bring("abcde")
    members.wait((name, *without(name)), PACE.gather + 5)
    link = the_link(members, without(name))
    assert link.ballot == 1 and set(without(name)) <= set(link.choice.makers)


def test_only_a_coordinator_is_followed() -> None:
    """What another member answers neither closes the roll nor ends the ballot."""
    members = Members("abcde")
    first = members.coordinator(0)
    one, other = list(without(first))[:2]
    ballots = members.rounds[one].ballots
    ballots.hear(other, Answer(1, roll=(promise(other, 1),), closed=True), 5.0)
    ballots.hear(other, Answer(0, roll=(promise(other),), closed=True), 5.0)
    assert (ballots.ballot, ballots.here.roll, ballots.here.heard) == (0, (), 0.0)


def test_a_coordinator_that_lies_is_not_followed() -> None:
    """Nor one that proposes how another state is left."""
    members, elsewhere = Members("abcde"), "ee" * 32
    first = members.coordinator(0)
    ballots = members.rounds[without(first)[0]].ballots
    promises = tuple(replace(promise(each), state=elsewhere) for each in "abc")
    maker = coordinator_of(members.electorate, elsewhere, 0)
    for wrong in (FEW, Proposal(maker, elsewhere, 0, choice("abc"), promises)):
        ballots.hear(first, Answer(0, proposal=wrong), 0.0)
        assert ballots.here.proposal is None


def test_what_is_judged_too_late_is_not_accepted() -> None:
    """There is another proposal now, or what was proposed is accepted already, or we have left."""
    members = Members("abcde")
    first = members.coordinator(0)
    ballots = members.rounds[without(first)[0]].ballots
    shown = proposal(map(promise, "abcde"), choice("abcde"))
    ballots.hear(first, Answer(0, proposal=shown), 0.0)
    for each in shown.choice.brought:
        ballots.stock.held.add(each.digest)
    ballots.judge(choice("abc"), after(choice("abc")))
    assert ballots.here.acceptance is None and ballots.to_judge == shown.choice
    ballots.judge(shown.choice, after(shown.choice))
    ballots.judge(shown.choice, "3" * 64)
    said = ballots.report().acceptance
    assert said is not None and said.after == after(shown.choice)
    ballots = members.rounds[without(first)[1]].ballots
    ballots.hear(first, Answer(0, proposal=shown), 0.0)
    for each in shown.choice.brought:
        ballots.stock.held.add(each.digest)
    ballots.leave()
    assert ballots.to_judge is None


def test_a_roll_that_is_closed_stays_as_it_is() -> None:
    """What others were told is what is averaged: whoever comes later counts in the next round."""
    members = Members("abc")
    late = without(members.coordinator(0), "abc")[0]
    there = without(late, "abc")
    members.bring(there)
    members.wait(there, PACE.gather + 2, holds=lambda name, each: name == each.maker)
    members.bring(late)
    members.talk("abc")
    assert the_link(members, "abc").choice.makers == tuple(there)


def test_many_strangers_take_nobodys_place() -> None:
    """What members hold is noted, whoever has reported before them."""
    members = Members("abc", strangers="x")
    first = members.rounds[members.coordinator(0)]
    report = members.rounds["x"].report()
    for number in range(MAKERS_MAX + 1):
        promise = replace(report.promise, maker=f"stranger {number}", brought=brought(f"stranger {number}"))
        first.note(replace(report, promise=promise), 0.0)
    assert len(first.ballots._heard_at) == MAKERS_MAX
    members.bring("abc")
    members.talk("abc", times=8)
    assert set("abc") <= set(the_link(members, "abc").choice.makers)


def test_what_strangers_hold_is_bounded() -> None:
    """They could say that they hold whatever they like, each by any number of keys."""
    stock = Stock(frozenset("abc"), lasting=True)
    for number in range(MAKERS_MAX + 1):
        stock.note_held(f"stranger {number}", frozenset("d"))
    stock.note_held("a", frozenset("d"))
    assert len(stock.held_by) == MAKERS_MAX + 1 and "a" in stock.held_by


@pytest.mark.parametrize("lasting", [False, True])
def test_what_is_held_in_the_next_ballot(lasting: bool) -> None:
    """All, or nothing where it came as the average of those of one roll."""
    stock = Stock(frozenset("abc"), lasting=lasting)
    stock.held.add("d")
    stock.note_held("a", frozenset("d"))
    stock.turn()
    assert (stock.held == {"d"}, "a" in stock.held_by) == (lasting, lasting)


def test_a_stranger_that_says_what_it_accepts_takes_no_part() -> None:
    """It decides nothing, and its choices would fill the answers to all."""
    stock, accepting = Stock(frozenset("abc"), lasting=True), Accepted(0, "1" * 64, "2" * 64)
    assert stock.admits(promise("x"), ()) and stock.admits(promise("a", accepted=accepting), ())
    assert not stock.admits(promise("x", accepted=accepting), "x")


def test_a_remnant_goes_on_where_half_are_gone() -> None:
    """After two ballots; it is the next electorate."""
    members = Members("abcd")
    members.bring("ab")
    members.wait("ab", 2 * (PACE.gather + 4 * PACE.silence), there="ab")
    link = the_link(members, "ab")
    assert link.choice.weak and link.makers == set("ab")
    assert link.electorate(members.electorate).members == set("ab")


def test_a_remnant_goes_on_at_once_where_the_others_are_seen_to_be_gone() -> None:
    """Nobody listens where they were."""
    members = Members("abcd")
    members.bring("a")
    round = members.rounds["a"]
    for _ in range(3):
        round.consider(members.now, here=(), gone="bcd")
        if (choice := round.to_judge) is not None:
            round.judge(choice, after(choice))
    assert the_link(members, "a").choice.weak


def test_ballots_that_fail_for_any_reason_lead_on() -> None:
    """Here nobody ever holds what others bring: after so many ballots each goes on with what it has."""
    members = Members("abc")
    members.bring("abc")
    while members.rounds["a"].link is None:
        members.now += 1.0
        members.talk("abc", holds=lambda name, each: name == each.maker, times=1)
        assert members.now < (FAILED_MAX + 2) * (PACE.gather + PACE.exchange + 4 * PACE.silence)
    assert members.rounds["a"].link.choice.weak


def crashed(members: Members) -> tuple[Choice, Pledged]:
    """What the only member has accepted of its own, and what it has kept of that."""
    kept: list[Pledged] = []
    round = Round(Ballots(Voice("a", keep=kept.append), STATE, members.electorate, PACE, 0.0))
    round.bring(brought("a"), 0.0)
    round.consider(0.0, ())
    choice = round.to_judge
    assert choice is not None
    round.judge(choice, after(choice))
    return choice, kept[-1]


def test_what_only_a_crashed_peer_had_is_not_waited_for() -> None:
    """Alone it has accepted a contribution, which is gone: it goes on weakly after a few short ballots."""
    members = Members("a")
    _, kept = crashed(members)
    again = members.rounds["a"] = Round(Ballots(Voice("a"), STATE, members.electorate, PACE, 0.0, kept))
    again.bring(brought("a", 20), 0.0)
    while again.link is None:
        members.wait("a", 1, holds=lambda *_: False)
        assert members.now < (FAILED_MAX + 1) * (PACE.silence + 2)
    assert again.link.choice == Choice((brought("a", 20),), weak=True)


def test_what_was_signed_outlives_a_crash() -> None:
    """Who comes back promises for a later ballot, and shows what it has accepted."""
    members = Members("a")
    choice, kept = crashed(members)
    again = Round(Ballots(Voice("a"), STATE, members.electorate, PACE, 0.0, kept))
    promise = again.report().promise
    assert promise.ballot > kept.ballot - 1 and promise.accepted == kept.accepted is not None
    again.bring(brought("a", 20), 0.0)
    again.stock.held.add(choice.brought[0].digest)
    again.consider(0.0, ())
    assert again.to_judge == choice


def test_after_a_crash_it_says_nothing_twice() -> None:
    """It goes on in its ballot, but not where it may have proposed something, or has accepted something."""
    members = Members("abc")
    first = members.coordinator(0)
    other = without(first, "abc")[0]
    known = Accepted(0, "1" * 64, "2" * 64)
    for name, accepted, ballot in ((first, None, 1), (other, None, 0), (other, known, 1)):
        kept = Pledged(0, accepted)
        assert Ballots(Voice(name), STATE, members.electorate, PACE, 0.0, kept).ballot == ballot
