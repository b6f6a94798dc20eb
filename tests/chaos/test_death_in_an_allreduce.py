"""Peers die in the middle of an all-reduce: the others go on."""

from collections.abc import Iterator

import pytest

from dupt_swarm.manifest import Manifest
from tests.support.chaos.life import assert_gone, chaos_swarm, processes_of
from tests.support.chaos.swarm import MANIFEST, ChaosSwarm
from tests.support.tiny import reduced_tables
from tests.support.waiting import wait_until

TURN_SECONDS = 300.0  # within which it is drawn to reduce: one of four is, in each round


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosSwarm]:
    """One swarm for all stages, which reduces."""
    tables = MANIFEST.model_dump()
    changes = {name: tables[name] | keys for name, keys in reduced_tables().items()}
    with chaos_swarm(tmp_path_factory.mktemp("chaos"), Manifest.model_validate(tables | changes)) as swarm:
        yield swarm


@pytest.mark.system  # for its length; network/averaging/test_allreduce.py shows the parts
@pytest.mark.parametrize("stage", ["sending", "reducing"])
def test_an_oracle_dies_at_a_stage_of_an_allreduce(swarm: ChaosSwarm, stage: str) -> None:
    """A power cut in the middle of it: the others end that round or the next, with equal states."""
    victim = swarm.oracle(f"dies in {stage}".replace(" ", "-"))
    victim.start(stage)
    victim.joined()
    family = processes_of(victim)
    wait_until(lambda: not victim.alive, f"it dies in {stage}", TURN_SECONDS)
    swarm.expect_rounds(1)
    assert_gone(family)
