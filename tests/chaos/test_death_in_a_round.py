"""Peers die in the middle of rounds: the others lose none of them."""

import pytest

from tests.support.chaos.life import TURN_SECONDS, assert_gone, processes_of
from tests.support.chaos.swarm import ChaosSwarm
from tests.support.waiting import wait_until


@pytest.mark.parametrize("stage", ["fetching", "holding", "judging", "accepting", "link", "coordinating"])
def test_no_round_is_lost(swarm: ChaosSwarm, stage: str) -> None:
    """A power cut in any stage of a round: the others end that very round, all alike."""
    victim = swarm.join(f"dies-in-{stage}", stage)
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
