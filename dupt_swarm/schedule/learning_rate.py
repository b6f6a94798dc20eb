"""The learning rate of the outer step."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest


def outer_learning_rate(manifest: Manifest, round: int) -> float:
    """The rate of the step that ends ``round`` (from 0).

    The schedule belongs to the updates that follow gradients: rounds with `gradient`, the inner steps
    with `diloco`, whose outer rate is constant.
    """
    if manifest.rounds.strategy == "gradient":
        return manifest.outer.learning_rate * manifest.schedule.factor(round)
    return manifest.outer.learning_rate
