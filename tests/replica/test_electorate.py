"""Who decides, as it follows from the rounds, and what becomes of it when volunteers come and go."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations, islice, product
from random import Random

import pytest

from dupt_swarm.replica.electorate import (
    JUNIOR_ROUNDS_MAX,
    MEMORY_ROUNDS,
    PROBATION_ROUNDS,
    ROWS_MAX,
    Electorate,
)

FOUNDERS = ["a", "b", "c"]


def after(electorate: Electorate, *rounds: Collection[str]) -> Electorate:
    """That after rounds in which the contributions of these counted."""
    for counted in rounds:
        electorate = electorate.after(counted)
    return electorate


@pytest.fixture
def founded() -> Electorate:
    """That after a first round of three."""
    return Electorate().after(FOUNDERS, weak=True)


def test_nobody_decides_before_the_first_round(founded) -> None:
    """It makes an electorate of all whose contributions count in it."""
    assert Electorate().members == frozenset()
    assert not Electorate().is_quorum(FOUNDERS)
    assert founded.members == set(FOUNDERS)


def test_a_quorum_is_more_than_half(founded) -> None:
    """Of those who decide; whoever else signs does not count."""
    assert founded.is_quorum(["a", "b"])
    assert not founded.is_quorum(["a", "x", "y", "z"])


def test_a_peer_that_has_left_is_not_counted(founded) -> None:
    """With two of three gone the third decides, and with all gone nobody does."""
    assert not founded.is_quorum(["c"], left=["a"])
    assert founded.is_quorum(["c"], left=["a", "b"])
    assert not founded.is_quorum(["a", "b", "c"], left=FOUNDERS)


def test_a_newcomer_is_on_probation(founded) -> None:
    """It decides after so many rounds that counted it, and not before."""
    rounds = [[*FOUNDERS, "new"]] * PROBATION_ROUNDS
    assert "new" not in after(founded, *rounds[1:])
    assert "new" in after(founded, *rounds)


def test_a_peer_that_counts_in_no_round_decides_no_longer(founded) -> None:
    """After a few rounds; one round that counts brings it back, however long it was away."""
    gone = after(founded, *[["a", "b"]] * MEMORY_ROUNDS)
    assert gone.members == {"a", "b"}
    assert after(gone, *[["a", "b"]] * 200, FOUNDERS).members == set(FOUNDERS)


def test_a_peer_that_leaves_decides_no_longer(founded) -> None:
    """From the next state on, also if its contribution counted once more."""
    assert founded.after(FOUNDERS, left=["c"]).members == {"a", "b"}


def test_a_weak_round_leaves_those_who_ended_it(founded) -> None:
    """Members of the electorate if there are any, then former ones, then anybody."""
    assert founded.after(["a", "new"], weak=True).members == {"a"}
    left = founded.after(["a", "b"], left=FOUNDERS)
    assert left.members == frozenset()
    assert left.after(["b", "x", "y"], weak=True).members == {"b"}
    assert left.after(["x", "y"], weak=True).members == {"x", "y"}
    gone = after(founded, *[["a", "b"]] * MEMORY_ROUNDS)
    assert gone.after(["a", "c"], weak=True).members == {"a"}
    assert founded.after(FOUNDERS, left=["c"], weak=True).members == {"a", "b"}


def test_juniors_are_fewer_than_others() -> None:
    """Those that came first, without who has left; and nobody is one for longer than so many rounds."""
    services = {f"s{number}": (100, 1, 300) for number in range(3)}
    services |= {f"j{number}": (PROBATION_ROUNDS, 290 + number, 300) for number in range(5)}
    young = Electorate(300, services)
    assert young.members == {"s0", "s1", "s2", "j0", "j1"}
    assert young.deciding(["j0"]) == {"s0", "s1", "s2", "j1", "j2"}
    assert young.deciding(["s0", "s1"]) == {"s2"}
    old = Electorate(1000, {"old": (900, 1, 1000), "new": (200, 1000 - JUNIOR_ROUNDS_MAX, 1000)})
    assert old.members == {"old", "new"}


def test_the_table_is_bounded(founded) -> None:
    """Of all that come, those past probation stay, and of the others those who came last."""
    electorate = founded
    for number in range(6):
        electorate = electorate.after([*FOUNDERS, *(f"new{number}x{each}" for each in range(200))])
    assert len(electorate.services) == ROWS_MAX
    assert electorate.members == set(FOUNDERS)
    assert "new5x0" in electorate.services
    assert electorate.after([f"last{each}" for each in range(ROWS_MAX)]).former == set(FOUNDERS)


def test_it_travels_in_the_header_of_a_state() -> None:
    """What is read is what was written; anything else is refused."""
    ids = [f"Qm{letter * 44}" for letter in "abc"]
    electorate = Electorate().after(ids, weak=True).after(ids[:2])
    tree = electorate.to_json()
    assert Electorate.parse(2, tree) == electorate
    rows = ([ids[0], 0, 1, 1], [ids[0], 1, 1, 3], ["?", 1, 1, 1], [ids[0], 1, 1, True], [ids[0], 1, 2, 1], 5)
    more = ([ids[0], 1, 0, 1], [ids[0], 1 << 62, 1, 1])
    pairs = map("".join, product("abcdefghijkmnopqrstuvwxyz", repeat=2))
    many = [[peer, 1, 1, 1] for peer in islice(pairs, ROWS_MAX + 1)]
    for wrong in ({}, tree[::-1], many, *([row] for row in (*rows, *more))):
        with pytest.raises(ValueError, match="electorate"):
            Electorate.parse(2, wrong)


def subsets(peers: Collection[str]) -> Iterator[frozenset[str]]:
    """All of them."""
    sizes = (combinations(sorted(peers), size) for size in range(len(peers) + 1))
    return map(frozenset, chain.from_iterable(sizes))


@pytest.mark.parametrize("seniors", [1, 2, 3])
@pytest.mark.parametrize("juniors", [0, 1, 2, 3])
def test_quorums_meet_whoever_has_left(seniors: int, juniors: int) -> None:
    """Those of two ballots share somebody, or somebody of the first has left in the second.

    Nobody who has left in the first signs in the second: a leave names the ballots from which on it counts.
    """
    services = {f"s{number}": (100, 1, 300) for number in range(seniors)}
    services |= {f"j{number}": (PROBATION_ROUNDS, 297, 300) for number in range(juniors)}
    electorate = Electorate(300, services)
    for left_first, left_second in ((one, two) for one in subsets(services) for two in subsets(services)):
        first, second = electorate.deciding(left_first), electorate.deciding(left_second)
        may_first, may_second = first - left_second, second - left_first
        shared = may_first & may_second
        of_first = max(0, len(first) // 2 + 1 - len(may_first - shared))
        of_second = max(0, len(second) // 2 + 1 - len(may_second - shared))
        possible = len(may_first) > len(first) // 2 and len(may_second) > len(second) // 2
        assert not (first and second and possible) or of_first + of_second > len(shared)


DAYS = 60


@dataclass
class Attendance:
    """Rounds of a swarm whose volunteers come at their hours, day after day.

    Attributes:
        hours: of each volunteer: when it begins, and for how long it trains.
        strangers: keys that somebody has made, which are there day and night from ``strange_day`` on.
        crashes: the part of those who go that do not say so.
    """

    hours: dict[str, tuple[float, float]]
    strangers: Collection[str] = ()
    strange_day: int = 0
    crashes: float = 0.0
    electorate: Electorate = field(default_factory=Electorate)
    links: int = 0
    strong: int = 0
    outvoted: int = 0
    votes_since: dict[str, float] = field(default_factory=dict)

    def run(self, rounds_an_hour: float) -> None:
        """Sixty days of it."""
        random, before = Random(0), set[str]()
        for number in range(int(DAYS * 24 * rounds_an_hour)):
            day = number / rounds_an_hour / 24
            there = {peer for peer in self.hours if self._is_there(peer, day)}
            strangers = set(self.strangers) if day >= self.strange_day else set()
            left = {peer for peer in sorted(before - there) if random.random() > self.crashes}
            if there or strangers:
                self._end_round(there | strangers, left, day)
            before = there

    def _is_there(self, peer: str, day: float) -> bool:
        begins, length = self.hours[peer]
        return (24 * day - begins) % 24 < length

    def _end_round(self, there: set[str], left: set[str], day: float) -> None:
        strong = self.electorate.is_quorum(there, left)
        fresh = day < self.strange_day + 1 and not self.electorate.members <= set(self.strangers)
        self.outvoted += fresh and self.electorate.is_quorum(self.strangers, left)
        self.links, self.strong = self.links + 1, self.strong + strong
        self.electorate = self.electorate.after(
            there, left & self.electorate.services.keys(), weak=not strong
        )
        for peer in self.electorate.members:
            self.votes_since.setdefault(peer, day)


def spread(count: int, length: float) -> dict[str, tuple[float, float]]:
    """So many volunteers; each trains for ``length`` hours a day, beginning at an hour of its own."""
    random = Random(count)
    return {f"v{number:02}": (random.uniform(0, 24), length) for number in range(count)}


SCHEDULES = {
    "20 of 8 h": spread(20, 8),
    "30 of 8 h": spread(30, 8),
    "10 of 6 h": spread(10, 6),
    "one day and night, nine of 8 h": {"v00": (0.0, 24.0)}
    | {f"v{each:02}": (9.0, 8.0) for each in range(1, 10)},
}


@pytest.mark.parametrize("rounds_an_hour", [1, 2, 6])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_volunteers_who_come_and_go_decide(schedule: str, rounds_an_hour: float) -> None:
    """Whatever their hours: nearly all links are strong, and who is new in the swarm soon decides too."""
    attendance = Attendance({**SCHEDULES[schedule], "new": (20.0, 8.0)})
    attendance.run(rounds_an_hour)
    assert attendance.strong >= 0.95 * attendance.links
    assert attendance.votes_since["new"] <= 2


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_they_decide_where_a_fifth_of_them_crash(schedule: str) -> None:
    """Who does not say that it leaves is awaited for a few rounds more; mostly the others are enough."""
    attendance = Attendance(SCHEDULES[schedule], crashes=0.2)
    attendance.run(2)
    assert attendance.strong >= 0.9 * attendance.links


@pytest.mark.parametrize("strange_day", [2, 5, 30])
@pytest.mark.parametrize("rounds_an_hour", [1, 2, 6])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_five_strange_keys_never_outvote(schedule: str, rounds_an_hour: float, strange_day: int) -> None:
    """They bring what counts, day and night, and yet are no quorum on their first day."""
    strangers = [f"key{number}" for number in range(5)]
    attendance = Attendance(SCHEDULES[schedule], strangers, strange_day)
    attendance.run(rounds_an_hour)
    assert attendance.outvoted == 0
