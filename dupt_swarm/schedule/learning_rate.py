"""The learning rate of the outer step."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest


def outer_learning_rate(manifest: Manifest, round: int) -> float:
    """The learning rate of the outer step that ends ``round`` (from 0).

    The schedule applies to the updates that follow gradients: to the outer steps with `gradient`, to the
    inner steps with `diloco`, whose outer rate is constant.
    """
    if manifest.rounds.strategy == "gradient":
        return manifest.outer.learning_rate * manifest.schedule.factor(round)
    return manifest.outer.learning_rate
