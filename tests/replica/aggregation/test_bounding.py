"""What one contribution may count for, and a newcomer's."""

import pytest
import torch

from dupt_swarm.replica.aggregation import Bounded, Weighting, weightings
from dupt_swarm.replica.electorate import Electorate

VOTERS = Electorate().after(["a", "b"], weak=True)
STATE = "a" * 64
MEMBER, NEW = Weighting(), Weighting(0.25)


def parts_of(makers: list[str], electorate: Electorate = VOTERS) -> list[float]:
    return [each.part for each in weightings(makers, electorate, STATE)]


def test_newcomers_count_for_a_quarter() -> None:
    """A member counts fully, and all do where no member contributes."""
    assert parts_of(["a", "b", "new"]) == [1.0, 1.0, 0.25]
    assert parts_of(["x", "y"]) == [1.0, 1.0]
    assert parts_of(["x", "y"], Electorate()) == [1.0, 1.0]


def test_no_more_newcomers_than_members_are_asked() -> None:
    """Which of them differs from state to state, so that nobody can choose a key for it; all count."""
    makers = ["a", "b", *(f"new{number}" for number in range(20))]
    chosen = set()
    for state in ("a" * 64, "b" * 64, "c" * 64):
        found = weightings(makers, VOTERS, state)
        assert sorted(each.part for each in found) == [0.25] * 20 + [1.0] * 2
        assert [each.judges for each in found].count(True) == 4
        chosen.add(tuple(found))
    assert len(chosen) == 3


@pytest.mark.parametrize("count", [1, 2, 9, 50])
def test_newcomers_have_no_more_weight_than_members(count: int) -> None:
    """However many they are, none of them counts for nothing, and one alone for what it says."""
    makers = ["a", *(f"new{number}" for number in range(count))]
    parts = Bounded.of(
        lambda: [], [1.0] * len(makers), [10.0] * len(makers), weightings(makers, VOTERS, STATE)
    )
    assert sum(parts.shares) == pytest.approx(1)
    assert parts.shares[0] == pytest.approx(max(0.5, 1 / (1 + count)))
    assert min(parts.shares) > 0 and parts.evens[0] == 1.0
    assert sum(parts.evens[1:]) == pytest.approx(1.0)


def test_newcomers_move_no_median() -> None:
    """Neither far too large nor tiny ones change what the voters' contributions count for."""

    def bounded(norms: list[float], claimed: float = 1.0) -> Bounded:
        weights = [1.0, 8.0, claimed, claimed]
        return Bounded.of(lambda: [[torch.zeros(1)] * 4], norms, weights, [MEMBER, MEMBER, NEW, NEW])

    assert bounded([2.0, 3.0, 1e-6, 1e-6]).radius == bounded([2.0, 3.0, 1e6, 1e6]).radius == 2.0
    assert bounded([2.0, 2.0, 4.0, 1.0]).scales == [1.0, 1.0, 0.25 * 0.5, 0.25]
    for claimed in (1e-6, 1e6):
        one, other, *_ = bounded([2.0] * 4, claimed).shares
        assert other == pytest.approx(2 * one)


def test_newcomers_alone_judge_one_another() -> None:
    """As where what the members brought was unsound: those that were not asked are there, too."""
    found = Bounded.of(lambda: [[torch.zeros(1)] * 2], [1.0, 3.0], [1.0, 1.0], [Weighting(0.25, False)] * 2)
    assert (found.judges, found.radius, found.shares) == ([0, 1], 1.0, [0.5, 0.5])


def test_half_of_a_group_cannot_raise_the_bounds() -> None:
    """With as many at huge norms and weights as there are honest members, the medians are honest ones'."""
    norms, weights = [1.5, 0.5, 2.0, 1e5, 1e5, 1e5], [1.0, 2.0, 3.0, 1e6, 1e6, 1e6]
    found = Bounded.of(lambda: [[torch.zeros(1)] * 6], norms, weights)
    assert found.radius == 2.0
    assert found.scales == [1.0, 1.0, 1.0, *([2e-5] * 3)]
    assert found.shares == [1 / 24, 2 / 24, 3 / 24, 6 / 24, 6 / 24, 6 / 24]
