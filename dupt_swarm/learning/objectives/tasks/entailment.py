"""Entailment: ⟨s⟩ premise $ hypothesis ⟨e⟩."""

from __future__ import annotations

from dupt_swarm.learning.objectives.tasks.classification import Classification


class Entailment(Classification):
    """What a premise says of a hypothesis: a text in two parts, with a label."""

    columns: tuple[str, ...] = ("premise", "hypothesis")
    texts_at_once = 2
