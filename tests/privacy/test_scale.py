"""What is known of a contribution's norm before any corpus was seen."""

import math
from collections.abc import Callable

import pytest

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.privacy.scale import scale

GRADIENT = {"strategy": "gradient", "tokens_per_step": 1000, "tokens_per_round": 1000}
NO_INNER = {"optimizer": "none", "clip_norm": 0.7}


def test_inner_steps_move_each_value_by_the_learning_rate(make_manifest: Callable[..., Manifest]) -> None:
    """With `diloco`: √values × the sum of the round's rates, those of the warm-up included."""
    manifest = make_manifest(
        rounds={"tokens_per_step": 1000, "tokens_per_round": 4000},
        inner={"learning_rate": 0.01},
        schedule={"warmup_updates": 4, "total_updates": 10**9, "final_ratio": 1.0},
    )
    rates = [0.01 * manifest.schedule.factor(update) for update in range(4)]
    assert rates[0] < rates[-1]
    assert scale(manifest, 0, 900) == pytest.approx(30 * sum(rates))
    assert scale(manifest, 5, 900) == pytest.approx(30 * 4 * 0.01)


def test_gradients_are_clipped_already(make_manifest: Callable[..., Manifest]) -> None:
    """With `gradient`: the norm to which the manifest clips, whatever the round and the model."""
    manifest = make_manifest(rounds=GRADIENT, inner=NO_INNER)
    assert (scale(manifest, 0, 10), scale(manifest, 7, 10**6)) == (0.7, 0.7)


def test_gradients_without_a_bound_are_refused(make_manifest: Callable[..., Manifest]) -> None:
    """No noise can be known to hide them."""
    manifest = make_manifest(rounds=GRADIENT, inner=NO_INNER | {"clip_norm": 0.0})
    assert math.isclose(manifest.inner.clip_norm, 0.0)
    with pytest.raises(UsageError, match=r"inner\.clip_norm"):
        scale(manifest, 0, 10)
