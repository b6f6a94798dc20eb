"""Rounds that grow, in a real swarm of one oracle."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dupt_swarm import GPT, CollaborativeOptimizer, block_matrices
from dupt_swarm.errors import UsageError
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_manifest

STEP = 64


@pytest.mark.usefixtures("nothing_left")
def test_the_first_rounds_of_a_swarm_are_short(tmp_path: Path) -> None:
    """Rounds of 1, 2 and then 4 inner steps end when complete; the schedule counts every step once."""
    manifest = small_manifest(
        rounds={"growth": 2.0, "tokens_per_step": STEP, "tokens_per_round": 4 * STEP},
        inner={"optimizer": "muon", "learning_rate": 2e-3},
    )
    model = GPT(manifest.model)
    begin = [parameter.detach().clone() for parameter in model.parameters()]
    with Cluster(tmp_path, manifest, begin, ("oracle",)) as cluster:
        [swarm] = cluster.oracles
        wrongs: list[Any] = [[{"params": model.parameters()}], model.named_parameters()]
        for wrong in wrongs:
            with pytest.raises(UsageError, match=r"give model\.parameters\(\), no groups and no names"):
                CollaborativeOptimizer(wrong, swarm)
        optimizer = CollaborativeOptimizer(model.parameters(), swarm, block_matrices(model))
        rounds = []
        for step in range(11):
            assert optimizer.update == step
            tokens = torch.randint(manifest.model.vocabulary_size, (4, 17))
            model(tokens[:, :-1], tokens[:, 1:]).backward()
            optimizer.step(tokens=STEP)
            optimizer.zero_grad()
            rounds.append(swarm.state.round)
        assert rounds == [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]
        assert swarm.state.swarm_tokens == 11 * STEP
