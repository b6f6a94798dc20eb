"""Entailment: ⟨s⟩ premise $ hypothesis ⟨e⟩."""

from __future__ import annotations

from dupt_swarm.tasks.task import Task


class Entailment(Task):
    """What a premise says of a hypothesis: a text in two parts, with a label."""

    kind = "entailment"
    columns = ("premise", "hypothesis")
    texts_at_once = 2
    answers = ("label",)
    hub_name = "text-classification"
    input = "Input: `<|start|>` premise `<|delimiter|>` hypothesis `<|extract|>`."
    example = 'score(state("a premise", "a hypothesis"))'
