"""Learning rates over the life of a swarm, of the inner steps and of the outer one.

The schedule belongs to the updates that follow gradients: the inner steps with `diloco`, whose outer
rate is constant, and the rounds with `gradient`, which has no inner rate.
"""

from __future__ import annotations

from dupt_swarm.manifest import Manifest


def update_number(manifest: Manifest, round: int, tokens: int = 0) -> float:
    """The number of an update for the schedule.

    Args:
        manifest: of the swarm.
        round: rounds completed.
        tokens: of one oracle since then.
    """
    part = min(1.0, tokens / manifest.tokens_per_round(round))
    return manifest.first_update(round) + part * manifest.updates_in_round(round)


def scheduled_learning_rate(manifest: Manifest, update: float) -> float:
    """What the schedule gives at ``update``, whichever rate it is that follows it."""
    table = manifest.outer if manifest.strategy.scheduled == "outer" else manifest.inner
    return table.learning_rate * manifest.schedule.factor(update)


def inner_learning_rate(manifest: Manifest, update: float) -> float:
    """The rate of an inner step; of no use where there is no inner optimizer."""
    if manifest.strategy.scheduled == "inner":
        return scheduled_learning_rate(manifest, update)
    return manifest.inner.learning_rate


def outer_learning_rate(manifest: Manifest, round: int) -> float:
    """The rate of the outer step that ends ``round`` (from 0); the same bits on every machine."""
    if manifest.strategy.scheduled == "outer":
        return scheduled_learning_rate(manifest, update_number(manifest, round))
    return manifest.outer.learning_rate
