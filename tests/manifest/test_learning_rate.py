"""Learning rates of both kinds of steps, with either strategy."""

from typing import get_args

import pytest

from dupt_swarm.learning.strategies import STRATEGIES as CLASSES
from dupt_swarm.manifest import Manifest, Rounds
from dupt_swarm.manifest.learning_rate import (
    inner_learning_rate,
    outer_learning_rate,
    scheduled_learning_rate,
    update_number,
)
from dupt_swarm.manifest.tables import STRATEGIES

SCHEDULE = {"warmup_updates": 4, "total_updates": 104, "final_ratio": 0.1}


@pytest.fixture
def diloco(make_manifest) -> Manifest:
    """20 inner steps a round; 0.02 at the peak inside, always 0.7 outside."""
    return make_manifest(inner={"learning_rate": 0.02}, outer={"learning_rate": 0.7}, schedule=SCHEDULE)


@pytest.fixture
def gradient(make_manifest) -> Manifest:
    """No inner steps; 0.003 at the peak."""
    return make_manifest(
        rounds={"strategy": "gradient"},
        inner={"optimizer": "none"},
        outer={"optimizer": "adamw", "learning_rate": 0.003},
        schedule=SCHEDULE,
    )


def test_update_number(diloco: Manifest, gradient: Manifest) -> None:
    """An update is an inner step or a round; one oracle's tokens count for no more than one round."""
    half = diloco.rounds.tokens_per_round // 2
    assert [update_number(diloco, 3, tokens) for tokens in (0, half, 1 << 61)] == [60, 70, 80]
    assert [update_number(gradient, 3, tokens) for tokens in (0, half, 1 << 61)] == [3, 3.5, 4]


def test_update_numbers_go_on_while_rounds_grow(diloco: Manifest) -> None:
    """The part of a small round that is done counts for the few inner steps that the round has."""
    rounds = diloco.rounds.model_copy(update={"growth": 2.0})
    growing = diloco.model_copy(update={"rounds": rounds})
    step = rounds.tokens_per_step
    numbers = [update_number(growing, 2, tokens) for tokens in (0, step, 4 * step, 1 << 61)]
    assert numbers == [3, 4, 7, 7]
    assert update_number(growing, 6) == 1 + 2 + 4 + 8 + 16 + 20


@pytest.mark.parametrize(
    ("update", "ratio"), [(0, 0.2), (3, 0.8), (4, 1.0), (54, 0.55), (104, 0.1), (1e6, 0.1)]
)
def test_scheduled_rate(diloco: Manifest, gradient: Manifest, update: float, ratio: float) -> None:
    """Warm-up, cosine, and then the final ratio of whichever peak is scheduled."""
    assert scheduled_learning_rate(diloco, update) == pytest.approx(0.02 * ratio)
    assert scheduled_learning_rate(gradient, update) == pytest.approx(0.003 * ratio)


def test_only_one_of_the_two_is_scheduled(diloco: Manifest, gradient: Manifest) -> None:
    """With `diloco` the inner rate follows the schedule, with `gradient` the outer one."""
    rounds = (0, 1, 50)
    assert [outer_learning_rate(diloco, number) for number in rounds] == [0.7] * 3
    assert [inner_learning_rate(diloco, 20 * number) for number in rounds] == [
        scheduled_learning_rate(diloco, 20 * number) for number in rounds
    ]
    assert [outer_learning_rate(gradient, number) for number in rounds] == [
        scheduled_learning_rate(gradient, number) for number in rounds
    ]
    assert [inner_learning_rate(gradient, number) for number in rounds] == [gradient.inner.learning_rate] * 3


def test_every_strategy_is_described_and_built() -> None:
    """The manifest's choice, the table of what follows from it, and the classes are the same names."""
    assert set(get_args(Rounds.model_fields["strategy"].annotation)) == STRATEGIES.keys() == CLASSES.keys()
