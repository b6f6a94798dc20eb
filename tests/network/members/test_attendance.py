"""Whom rounds wait for."""

from collections import Counter

import pytest

from dupt_swarm.network.members import attendance
from dupt_swarm.network.members.attendance import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    TOLERATED,
    TOLERATED_OF_MATES,
    TOLERATED_OF_NEWCOMERS,
    Attendance,
)
from tests.support.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock) -> Attendance:
    return Attendance(Counter(), clock)


def hold(book: Attendance, companions: list[str], came: list[str]) -> tuple[str, ...]:
    """Hold one round where these are there, and so many bring something; which peers it waited for."""
    awaited = tuple(filter(book.expects, companions))
    book.ended(companions, came)
    return awaited


def test_a_peer_that_never_comes_is_waited_for_a_few_times(book) -> None:
    """The others are waited for all the same."""
    waits = [hold(book, ["ada", "phantom"], ["ada"]) for _ in range(10)]
    assert waits == [("ada", "phantom")] * TOLERATED + [("ada",)] * (10 - TOLERATED)
    assert book._refused == {"absent": 10 - TOLERATED}


def test_a_peer_that_was_there_before_is_waited_for_longer(book) -> None:
    """A mate may miss more rounds than somebody that nobody has ever met."""
    hold(book, ["ada", "eve"], ["ada", "eve"])
    waits = [hold(book, ["ada", "eve"], ["ada"]) for _ in range(10)]
    assert waits.count(("ada", "eve")) == TOLERATED_OF_MATES


def test_phantoms_with_ever_new_keys(book) -> None:
    """Newcomers together spoil so many rounds in a row and no more; one that comes opens the door again."""
    waits = [hold(book, ["ada", f"phantom{number}"], ["ada"]) for number in range(20)]
    assert sum(len(each) == 2 for each in waits) == 1 + TOLERATED_OF_NEWCOMERS
    hold(book, ["ada", "newcomer"], ["ada", "newcomer"])
    assert hold(book, ["ada", "newcomer", "other"], []) == ("ada", "newcomer")
    hold(book, [], ["other"])
    assert book.expects("other")


def test_newcomers_that_come_keep_the_door_open(book) -> None:
    """Only rounds in a row are counted that others have spoilt."""
    hold(book, ["ada"], ["ada"])
    for newcomer in "xyz":
        for number in range(TOLERATED_OF_NEWCOMERS - 1):
            hold(book, ["ada", f"phantom {newcomer}{number}"], ["ada"])
        assert hold(book, ["ada", newcomer], ["ada", newcomer]) == ("ada", newcomer)


@pytest.mark.parametrize("mate", [False, True])
def test_a_peer_that_was_away_for_long_is_waited_for_again(book, clock, mate: bool) -> None:
    """However many trials it has missed, one round to which it comes suffices, be it a newcomer or a mate."""
    if mate:
        hold(book, ["ada", "slow"], ["ada", "slow"])
    for _ in range(3 * TOLERATED_OF_MATES):
        hold(book, ["ada", "slow"], ["ada"])
        clock.now += LONGEST_SECONDS
    hold(book, ["ada", "slow"], ["ada", "slow"])
    assert book.expects("slow")


def test_everybody_has_another_chance(book, clock) -> None:
    """Now and then a round waits for all; more and more rarely while that is in vain."""
    times = []
    for _ in range(10):
        while len(hold(book, ["ada", "phantom"], ["ada"])) == 1:
            clock.now += 1.0
        times.append(clock.now)
        clock.now += 1.0
    pauses = [
        round(after - before)
        for before, after in zip(times[TOLERATED:], times[TOLERATED + 1 :], strict=False)
    ]
    assert pauses == [min(FIRST_SECONDS * 2 ** (n + 1), LONGEST_SECONDS) for n in range(len(pauses))]


def test_a_lone_oracle_among_phantoms(book) -> None:
    """It waits for them a few times, although no group is found, and then goes on alone."""
    waits = [hold(book, ["a", "b"], []) for _ in range(5)]
    assert waits == [("a", "b")] * TOLERATED + [()] * (5 - TOLERATED)


def test_memory_is_bounded(book, monkeypatch) -> None:
    """Phantoms without end are not remembered without end."""
    monkeypatch.setattr(attendance, "KEPT_MAX", 10)
    monkeypatch.setattr(attendance, "TOLERATED_OF_NEWCOMERS", 1000)
    for number in range(100):
        hold(book, [f"phantom{number}"], [f"mate{number}"])
    assert len(book._missed) == len(book._mates) == 10


def test_a_peer_that_comes_now_and_then(book) -> None:
    """Is not waited for in all the rounds between: one that it comes to makes up for one that it missed."""
    came = [number % 8 == 0 for number in range(800)]
    waits = [hold(book, ["ada", "eve"], ["ada", "eve"] if here else ["ada"]) for here in came]
    in_vain = sum(len(each) == 2 and not here for each, here in zip(waits, came, strict=True))
    assert in_vain <= TOLERATED_OF_MATES + sum(came)


def test_which_peers_may_come(book, clock) -> None:
    """New keys that spoilt round after round keep all newcomers out, until there is another chance."""
    hold(book, ["ada"], ["ada"])
    for number in range(TOLERATED_OF_NEWCOMERS):
        assert book.expects("newcomer")
        hold(book, ["ada", f"phantom{number}"], ["ada"])
    assert (book.expects("ada"), book.expects("newcomer")) == (True, False)
    hold(book, ["ada", "newcomer"], ["ada"])
    assert not book.expects("newcomer")
    clock.now += FIRST_SECONDS
    assert book.expects("newcomer")


def test_looking_changes_nothing(book, clock) -> None:
    """A round asks again and again which peers it waits for; only how it has ended counts."""
    for _ in range(TOLERATED):
        hold(book, ["ada", "phantom"], ["ada"])
    for _ in range(10):
        assert book.expects("ada") and not book.expects("phantom")
        clock.now += FIRST_SECONDS
    assert +book._refused == {}


def test_a_peer_that_comes_though_nobody_waited_for_it(book) -> None:
    """It was not absent, and is waited for from then on."""
    for _ in range(TOLERATED):
        hold(book, ["ada", "slow"], ["ada"])
    assert hold(book, ["ada", "slow"], ["ada", "slow"]) == ("ada",)
    assert +book._refused == {}
    assert book.expects("slow")
