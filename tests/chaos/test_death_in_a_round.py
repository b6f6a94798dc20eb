"""Peers die in the middle of rounds: the others lose none of them."""

from collections.abc import Iterator

import pytest

from tests.support.chaos.life import assert_gone, chaos_swarm, processes_of
from tests.support.chaos.swarm import ChaosSwarm
from tests.support.waiting import wait_until

# It may have to be past probation first, and then it is one of four whose turn it is.
TURN_SECONDS = 300.0


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosSwarm]:
    """One swarm for all stages."""
    with chaos_swarm(tmp_path_factory.mktemp("chaos")) as swarm:
        yield swarm


@pytest.mark.parametrize("stage", ["fetching", "holding", "judging", "accepting", "link", "coordinating"])
def test_no_round_is_lost(swarm: ChaosSwarm, stage: str) -> None:
    """A power cut in any stage of a round: the others end that very round, all alike."""
    victim = swarm.oracle(f"dies in {stage}".replace(" ", "-"))
    victim.start(stage)
    victim.joined()
    family = processes_of(victim)
    before = 0  # failures of other rounds: those that were there when it last lived

    def has_died() -> bool:
        nonlocal before
        failures = len(swarm.failures)
        if victim.alive:
            before = failures
            return False
        return True

    wait_until(has_died, f"it dies in {stage}", TURN_SECONDS)
    swarm.expect_rounds(1)
    assert swarm.failures[before:] == []
    assert_gone(family)
