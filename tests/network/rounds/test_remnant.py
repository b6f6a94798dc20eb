"""What a remnant's members sign and count, whoever coordinates it; how it comes about: see `test_round`."""

from dataclasses import replace

import pytest

from dupt_swarm.network.rounds.remnant import Remnant
from dupt_swarm.network.rounds.reports import Answer
from dupt_swarm.replica.link import Acceptance, Choice, Promise, Proposal
from tests.support.members import Members, after
from tests.support.words import STATE, brought, choice, link

BOTH = choice("ab", weak=True)
TOLD = "cd" * 32


def remnants() -> tuple[Remnant, Remnant]:
    """Those of two, whose two others are gone: the coordinator's, and the other's."""
    members = Members("abcd")
    members.bring("ab")
    for name in "abab":
        members.rounds[name].consider(0.0, here="ab", gone="cd")
    parts = [members.rounds[name].remnant for name in "ab"]
    first, other = sorted(filter(None, parts), key=lambda each: each.me != each.coordinator)
    assert (first.coordinator, other.coordinator) == (first.me, first.me)
    return first, other


def words(first: Remnant, other: Remnant) -> tuple[Promise, ...]:
    """The last words of both, which bring something."""
    return first.report().promise, other.report().promise


def proposed(first: Remnant, other: Remnant, chosen: Choice = BOTH) -> Proposal:
    """What the coordinator may propose."""
    return Proposal(first.me, STATE, 0, chosen, words(first, other))


def hear(first: Remnant, other: Remnant, proposal: Proposal) -> None:
    """The coordinator answers with it."""
    other.hear(first.me, Answer(0, weak=True, proposal=proposal), 0.0)


def test_what_is_sound_is_taken() -> None:
    """So all that is refused below is refused for what is wrong there."""
    first, other = remnants()
    hear(first, other, proposed(first, other))
    assert other.here.proposed == BOTH


@pytest.mark.parametrize(
    "wrong",
    [
        lambda first, other: replace(proposed(first, other), choice=choice("ab")),
        lambda first, other: replace(proposed(first, other), maker=other.me),
        lambda first, other: replace(proposed(first, other), state="ee" * 32),
        lambda first, other: proposed(first, other, choice("", weak=True)),
        lambda first, other: proposed(first, other, choice("abx", weak=True)),
        lambda first, other: proposed(first, other, replace(BOTH, brought=(brought("a"), *BOTH.brought))),
        lambda first, other: replace(
            proposed(first, other),
            promises=tuple(replace(each, leaves=False) for each in words(first, other)),
        ),
        lambda first, other: replace(
            proposed(first, other),
            promises=tuple(replace(each, state="ee" * 32) for each in words(first, other)),
        ),
    ],
    ids=["strong", "another's", "elsewhere", "nothing", "unstated", "twice", "no last words", "of elsewhere"],
)
def test_what_is_not_sound_is_not_signed(wrong) -> None:
    """Whatever the coordinator answers."""
    first, other = remnants()
    hear(first, other, wrong(first, other))
    assert other.here.proposal is None and other.to_judge is None


def test_a_weak_link_is_taken_of_the_coordinator_alone() -> None:
    """And only if it leads where what was accepted here leads."""
    first, other = remnants()
    hear(first, other, proposed(first, other))
    other.stock.held.update(each.digest for each in BOTH.brought)
    other.judge(BOTH, TOLD)
    for peer, found in (
        ("c", link("ab", BOTH, after=TOLD)),
        (first.me, link("ab", BOTH, after="ef" * 32)),
        (first.me, link("ab", choice("a", weak=True), after=TOLD)),
    ):
        other.hear(peer, Answer(0, weak=True, link=found), 0.0)
        assert other.link is None
    other.hear(first.me, Answer(0, weak=True, link=link("ab", BOTH, after=TOLD)), 0.0)
    assert other.link is not None


def test_whose_signatures_count() -> None:
    """Of those who came, of what was proposed, as a remnant's; the link is one that others can verify."""
    first, other = remnants()
    first.note(other.report())
    first.stock.held.update(each.digest for each in BOTH.brought)
    first.consider(0.0, {other.me})
    assert first.to_judge == BOTH
    first.judge(BOTH, after(BOTH))
    said = Acceptance(other.me, STATE, 0, BOTH.id, after(BOTH), weak=True)
    late = replace(other.report().promise, maker="x", brought=brought("x"))
    for report in (
        replace(other.report(), acceptance=replace(said, weak=False)),
        replace(other.report(), acceptance=replace(said, choice="1" * 64)),
        replace(other.report(), promise=late, acceptance=replace(said, maker="x")),
    ):
        first.note(report)
        assert first.here.acceptances.keys() == {first.me}
    first.note(replace(other.report(), acceptance=said))
    first.consider(0.0, {other.me})
    assert first.link is not None and first.link.makers == {"a", "b"}
    first.link.check(first.electorate)


def test_members_coordinate_before_strangers() -> None:
    """However many those are."""
    first, _ = remnants()
    assert first._first({"c", *map(str, range(50))}) == "c"
