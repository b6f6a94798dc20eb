"""What one contribution may count for, and a newcomer's."""

import torch

from dupt_swarm.replica.aggregation import Bounded, standings
from dupt_swarm.replica.electorate import Electorate

VOTERS = Electorate().after(["a", "b"], weak=True)
STATE = "a" * 64


def test_newcomers_count_for_a_quarter() -> None:
    """A voter counts fully, and all do where no voter contributes."""
    assert standings(["a", "b", "new"], VOTERS, STATE) == [1.0, 1.0, 0.25]
    assert standings(["x", "y"], VOTERS, STATE) == [1.0, 1.0]
    assert standings(["x", "y"], Electorate(), STATE) == [1.0, 1.0]


def test_newcomers_are_never_more_than_voters() -> None:
    """Which of them count differs from state to state, so that nobody can choose a key for it."""
    makers = ["a", "b", *(f"new{number}" for number in range(20))]
    chosen = set()
    for state in ("a" * 64, "b" * 64, "c" * 64):
        counts = standings(makers, VOTERS, state)
        assert sorted(counts) == [0.0] * 18 + [0.25] * 2 + [1.0] * 2
        chosen.add(tuple(counts))
    assert len(chosen) == 3


def test_newcomers_move_no_median() -> None:
    """Neither far too large nor tiny ones change what the voters' contributions count for."""

    def bounded(norms: list[float]) -> Bounded:
        return Bounded.of(lambda: [[torch.zeros(1)] * 4], norms, [1.0] * 4, [1.0, 1.0, 0.25, 0.25])

    assert bounded([2.0, 3.0, 1e-6, 1e-6]).radius == bounded([2.0, 3.0, 1e6, 1e6]).radius == 2.0
    assert bounded([2.0, 2.0, 4.0, 1.0]).scales == [1.0, 1.0, 0.25 * 0.5, 0.25]


def test_half_of_a_group_cannot_raise_the_bounds() -> None:
    """With as many at huge norms and weights as there are honest members, the medians are honest ones'."""
    norms, weights = [1.5, 0.5, 2.0, 1e5, 1e5, 1e5], [1.0, 2.0, 3.0, 1e6, 1e6, 1e6]
    found = Bounded.of(lambda: [[torch.zeros(1)] * 6], norms, weights)
    assert found.radius == 2.0
    assert found.scales == [1.0, 1.0, 1.0, *([2e-5] * 3)]
    assert found.shares == [1 / 24, 2 / 24, 3 / 24, 6 / 24, 6 / 24, 6 / 24]
