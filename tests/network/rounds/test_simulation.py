"""Swarms in which peers crash, leave, come back, are split and lie: what always holds.

`make fuzz` runs other schedules each time, for as long as one likes.
"""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dupt_swarm.network.rounds import ballots
from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.replica import link
from tests.support.schedules import CONTRADICTION, SECOND_LINK, check

SEEDS = st.integers(0, 1 << 40)
IGNORING, FORGETTING = range(60, 140), range(100)


@settings(max_examples=80)
@given(SEEDS)
def test_one_chain_whatever_happens(seed: int) -> None:
    """One strong link leaves a state, all end on one branch, rounds go on, tokens are in the chain."""
    assert check(seed, lies=False) == []


@settings(max_examples=60)
@given(SEEDS)
def test_a_minority_of_liars_gives_itself_away(seed: int) -> None:
    """A second strong link comes with a proof against a liar, and never against an honest peer."""
    assert check(seed, lies=True) == []


def test_the_simulation_sees_a_coordinator_that_ignores_what_binds_it(monkeypatch) -> None:
    """Two strong links leave a state: so the check above can fail."""
    for module in (ballots, link):
        monkeypatch.setattr(module, "binding", lambda *_: frozenset())
    assert SECOND_LINK in found_in(IGNORING)


def test_the_simulation_sees_a_peer_that_forgets_its_word(monkeypatch) -> None:
    """After a crash it contradicts itself: so what it keeps must be kept."""

    def forget(self: Ballots, **changes: object) -> None:
        self._pledged = replace(self._pledged, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(Ballots, "_pledge", forget)
    assert CONTRADICTION in found_in(FORGETTING)


def found_in(seeds: range) -> Iterator[str]:
    """What does not hold in the schedules of these seeds, one after the other."""
    return (problem for seed in seeds for problem in check(seed, lies=False))
