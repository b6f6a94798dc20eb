"""Classification: ⟨s⟩ text ⟨e⟩."""

from __future__ import annotations

from dupt_swarm.tasks.task import Task


class Classification(Task):
    """Which label a text has."""

    kind = "classification"
    columns = ("text",)
    texts_at_once = 1
    answers = ("label",)
    hub_name = "text-classification"
    input = "Input: `<|start|>` text `<|extract|>`."
    example = 'score(state("a text"))'
