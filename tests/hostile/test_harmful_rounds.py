"""Contributions that pass every check, and would make the model worse.

Where they are shared, what one member contributes counts with the others' norm at most, so that it takes all
of them to do harm. Members that reduce bound nothing: there one is enough, and the vote is what is left.
"""

import random
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dupt_swarm import Swarm
from dupt_swarm.node.messages import RoundResult
from dupt_swarm.oracle.judge import GROUPS, accepts
from tests.support.contributions import put
from tests.support.driven_swarm import Cluster
from tests.support.saved_models import small_manifest
from tests.support.tiny import reduced_tables

TARGET = torch.full((100,), 3.0)  # where the model is best
TOKENS = 640
LOOK_SECONDS = 0.01  # others need the processor
PATIENCE_SECONDS = 5.0  # with the hostile one, when the others are done


def loss(anchor: Tensor) -> float:
    return float((anchor - TARGET).norm())


@contextmanager
def swarm_of(folder: Path, *names: str, **tables: Any) -> Iterator[Cluster]:
    """A first peer, and these oracles, with these tables of the manifest."""
    manifest = small_manifest(**tables)
    with Cluster(folder, manifest, [torch.zeros_like(TARGET)], names) as cluster:
        yield cluster


def end_round(
    cluster: Cluster,
    hostile: Swarm | None = None,
    *,
    mistaken: Collection[Swarm] = (),
    attempts: int = 1,
) -> list[RoundResult]:
    """Of all oracles; what these contribute leads away from `TARGET`, and the hostile one judges nothing.

    Whose round is rejected contributes anew, as trainers do, until it has made so many ``attempts``.
    """

    def contribute_again(oracle: Swarm) -> RoundResult:
        for _ in range(attempts):
            if (result := contribute(oracle)).reason != "rejected":
                break
        return result

    def contribute(oracle: Swarm) -> RoundResult:
        # As gradients are: it is subtracted. What was rejected is made anew, and never the same.
        step = random.uniform(0.18, 0.2) * (oracle.anchor - TARGET)
        harmful = oracle is hostile or oracle in mistaken
        size = put(oracle.contribution, -5 * step if harmful else step, oracle.manifest)
        result = oracle.average(size, TOKENS, judged=oracle is not hostile)
        while not wait((result,), LOOK_SECONDS).done:
            if candidate := oracle.candidate:
                digest, anchor = candidate
                before, after = ([loss(state)] * GROUPS for state in (oracle.anchor, anchor))
                oracle.judge(digest, accepted=accepts(before, after))
        oracle.state = result.result().state or oracle.state
        return result.result()

    cluster.meet()
    with ThreadPoolExecutor(len(cluster.oracles)) as pool:
        ending = [pool.submit(contribute_again, oracle) for oracle in cluster.oracles]
        wait([each for each, oracle in zip(ending, cluster.oracles, strict=True) if oracle is not hostile])
        if hostile is not None and not wait(ending, PATIENCE_SECONDS).done >= set(ending):
            hostile.cancel_average()  # who has accepted what the others have refused waits for them
        return [each.result() for each in ending]


def losses(cluster: Cluster) -> list[float]:
    """Of the state that each oracle is at."""
    return [loss(oracle.anchor) for oracle in cluster.oracles]


@pytest.mark.usefixtures("nothing_left")
def test_one_that_does_harm_where_contributions_are_shared(tmp_path: Path) -> None:
    """A newcomer, and a voter as it is in the next round, costs no round: with the others' it helps."""
    with swarm_of(tmp_path, "ada", "bob") as cluster:
        assert [result.reason for result in end_round(cluster)] == [None, None]
        eve = cluster.add("eve")
        for _ in range(2):
            cluster.meet()
            before = losses(cluster)
            *honest, harmful = [result.reason for result in end_round(cluster, eve)]
            assert honest == [None, None]
            assert harmful in (None, "left_out")  # it may be so large that it counts for nothing
            pairs = zip(losses(cluster)[:2], before[:2], strict=True)
            assert all(after < former for after, former in pairs)


@pytest.mark.usefixtures("nothing_left")
def test_a_shared_round_that_does_harm(tmp_path: Path) -> None:
    """Where all contribute what leads away, each sees it in its own text, and nobody takes the round."""
    with swarm_of(tmp_path, "ada", "bob", "cleo") as cluster:
        before = cluster.first.state
        results = end_round(cluster, mistaken=cluster.oracles)
        assert [result.reason for result in results] == ["rejected"] * 3
        assert {oracle.state for oracle in cluster.oracles} == {before}
        assert [result.reason for result in end_round(cluster)] == [None] * 3
        assert max(losses(cluster)) < loss(torch.zeros_like(TARGET))


@pytest.mark.usefixtures("nothing_left")
def test_a_voter_that_does_harm_where_members_reduce(tmp_path: Path) -> None:
    """Those who see it in their own text reject the round, so nobody takes it; when it helps, all go on."""
    with swarm_of(tmp_path, "ada", "bob", "eve", **reduced_tables()) as cluster:
        assert [result.reason for result in end_round(cluster)] == [None] * 3  # from now on they decide
        ada, bob, eve = cluster.oracles
        before = ada.state
        assert [result.reason for result in end_round(cluster, eve)][:2] == ["rejected"] * 2
        assert (ada.state, bob.state) == (before, before)
        # What eve has brought before may still be on the roll. Its own new contribution is not rejected with
        # that: it waits for those of the others.
        results = end_round(cluster, attempts=2)
        assert [result.reason for result in results] == [None] * 3
        assert len({result.state for result in results}) == 1
        assert max(losses(cluster)) < loss(torch.zeros_like(TARGET))


@pytest.mark.usefixtures("nothing_left")
def test_a_newcomer_that_does_harm_where_members_reduce(tmp_path: Path) -> None:
    """It costs one round; those after it are ended by the voters alone, whoever comes."""
    with swarm_of(tmp_path, "ada", "bob", **reduced_tables()) as cluster:
        assert [result.reason for result in end_round(cluster)] == [None, None]
        ada, bob = cluster.oracles
        eve, before = cluster.add("eve"), ada.state
        assert [result.reason for result in end_round(cluster, eve)][:2] == ["rejected"] * 2
        assert (ada.state, bob.state) == (before, before)
        *results, refused = end_round(cluster, eve)
        assert [result.reason for result in results] == [None, None]
        assert [result.mates for result in results] == [(bob.peer_id,), (ada.peer_id,)]
        assert refused.state is None
