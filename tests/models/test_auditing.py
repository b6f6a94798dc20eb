"""Past rounds of a running swarm, computed again by an observer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dupt_swarm import GPT, audit
from tests.support.driven_swarm import Cluster
from tests.support.programs import dupt_peer
from tests.support.saved_models import small_manifest
from tests.support.tiny import reduced_tables

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(params=[{}, reduced_tables()], ids=["share", "reduce"])
def swarm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two oracles and a first peer, with each exchange."""
    manifest = small_manifest(**request.param)
    with Cluster(tmp_path, manifest, list(GPT(manifest.model).parameters())) as cluster:
        yield cluster


def test_honest_rounds_are_equal(swarm: Cluster) -> None:
    """Every round that the peers keep leads to the state that they claim; so says the program too."""
    states = [swarm.end_round() for _ in range(3)]
    found = audit(swarm.first.addresses)
    assert [(each.round, each.state_digest, each.verdict) for each in found] == [
        (state.round, state.digest, "equal") for state in states
    ]
    said = dupt_peer("audit", "--initial-peers", swarm.first.addresses[0], "--rounds", "2", "--json")
    assert [each["verdict"] for each in json.loads(said.stdout)] == ["equal"] * 2
    assert said.returncode == 0
