"""Peers die in the middle of rounds: the others lose none of them."""

from collections.abc import Iterator

import pytest

from tests.support.chaos.life import assert_gone, chaos_swarm, processes_of
from tests.support.chaos.swarm import ChaosSwarm
from tests.support.waiting import wait_until

# It may have to become a voter first, and then it is one of four whose turn it is.
TURN_SECONDS = 300.0


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosSwarm]:
    """One swarm for all stages."""
    with chaos_swarm(tmp_path_factory.mktemp("chaos")) as swarm:
        yield swarm


def lost(swarm: ChaosSwarm) -> list[str]:
    """Why rounds of the steady oracles failed that had a group: beside a dead peer some may find none."""
    return [reason for reason in swarm.failures if reason != "no_group"]


@pytest.mark.parametrize("stage", ["fetching", "coordinating", "outer step", "voting"])
def test_no_round_is_lost(swarm: ChaosSwarm, stage: str) -> None:
    """A power cut in any stage of a round: who is in a group with it ends that very round, all alike."""
    victim = swarm.oracle(f"dies in {stage}".replace(" ", "-"))
    victim.start(stage)
    victim.joined()
    family = processes_of(victim)
    before = 0  # failures of other rounds: those that were there when it last lived

    def has_died() -> bool:
        nonlocal before
        failures = len(lost(swarm))
        if victim.alive:
            before = failures
            return False
        return True

    wait_until(has_died, f"it dies in {stage}", TURN_SECONDS)
    swarm.expect_rounds(1)
    assert lost(swarm)[before:] == []
    assert_gone(family)
