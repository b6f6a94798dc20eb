"""Peers die in the middle of an all-reduce: the others go on."""

from collections.abc import Iterator

import pytest

from dupt_swarm.manifest import Manifest
from tests.support.chaos.life import assert_others_go_on, chaos_swarm
from tests.support.chaos.swarm import MANIFEST, ChaosSwarm
from tests.support.tiny import reduced_tables


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosSwarm]:
    """One swarm for all stages, which reduces."""
    tables = MANIFEST.model_dump()
    changes = {name: tables[name] | keys for name, keys in reduced_tables().items()}
    with chaos_swarm(tmp_path_factory.mktemp("chaos"), Manifest.model_validate(tables | changes)) as swarm:
        yield swarm


@pytest.mark.system  # for its length; network/rounds/test_deciding.py shows the parts
@pytest.mark.parametrize("stage", ["sending", "reducing"])
def test_an_oracle_dies_at_a_stage_of_an_allreduce(swarm: ChaosSwarm, stage: str) -> None:
    """A power cut in the middle of it: the others end that round or the next, with equal states."""
    assert_others_go_on(swarm, stage)
