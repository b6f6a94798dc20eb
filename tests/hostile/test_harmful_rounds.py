"""Contributions that pass every check, and would make the model worse."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dupt_swarm import Swarm
from dupt_swarm.node.messages import RoundResult
from dupt_swarm.replica.vote import accepts
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import reduced_tables, tiny_manifest

TARGET = torch.full((100,), 3.0)  # where the model is best
TOKENS = 640
LOOK_SECONDS = 0.01  # others need the processor


def loss(anchor: Tensor) -> float:
    return float((anchor - TARGET).norm())


@contextmanager
def swarm_of(folder: Path, *names: str) -> Iterator[Cluster]:
    """A first peer, and these oracles."""
    tokenizer = small_tokenizer()
    manifest = tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **reduced_tables())
    with Cluster(folder, manifest, [torch.zeros_like(TARGET)], names) as cluster:
        yield cluster


def end_round(cluster: Cluster, harmful: Swarm | None = None) -> list[RoundResult]:
    """Of all oracles; what one of them contributes leads away from `TARGET`, and it judges nothing."""

    def contribute(oracle: Swarm) -> RoundResult:
        step = 0.2 * (oracle.anchor - TARGET)  # as gradients are: it is subtracted
        size = put(oracle.contribution, -5 * step if oracle is harmful else step, oracle.manifest)
        mates = cluster.mates_of(oracle)
        averaging = oracle.average(size, TOKENS, mates, judged=oracle is not harmful)
        result = ThreadPoolExecutor(1).submit(averaging.result)
        while not wait((result,), LOOK_SECONDS).done:
            if candidate := oracle.candidate:
                digest, anchor = candidate
                oracle.judge(digest, accepted=accepts(loss(oracle.anchor), loss(anchor)))
        return result.result()

    cluster.meet()
    with ThreadPoolExecutor(len(cluster.oracles)) as pool:
        return list(pool.map(contribute, cluster.oracles))


@pytest.mark.usefixtures("nothing_left")
def test_a_voter_that_does_harm(tmp_path: Path) -> None:
    """Those who see it in their own text reject the round, so nobody takes it; when it helps, all go on."""
    with swarm_of(tmp_path, "ada", "bob", "eve") as cluster:
        eve, before = cluster.oracles[-1], cluster.first.state
        assert [result.reason for result in end_round(cluster, eve)] == ["rejected"] * 3
        assert {oracle.state for oracle in cluster.oracles} == {before}
        results = end_round(cluster)
        assert [result.reason for result in results] == [""] * 3
        assert len({result.state for result in results}) == 1
        assert loss(cluster.oracles[0].anchor) < loss(torch.zeros_like(TARGET))


@pytest.mark.usefixtures("nothing_left")
def test_a_newcomer_that_does_harm(tmp_path: Path) -> None:
    """It costs one round; those after it are ended by the voters alone, whoever comes."""
    with swarm_of(tmp_path, "ada", "bob") as cluster:
        assert [result.reason for result in end_round(cluster)] == ["", ""]
        ada, bob = cluster.oracles
        eve, before = cluster.add("eve"), ada.state
        assert [result.reason for result in end_round(cluster, eve)][:2] == ["rejected"] * 2
        assert (ada.state, bob.state) == (before, before)
        *results, refused = end_round(cluster, eve)
        assert [result.reason for result in results] == ["", ""]
        assert [result.mates for result in results] == [(bob.peer_id,), (ada.peer_id,)]
        assert refused.state is None
