"""Similarity: ⟨s⟩ first $ second ⟨e⟩ and ⟨s⟩ second $ first ⟨e⟩, for neither text comes before the other."""

from __future__ import annotations

from dupt_swarm.tasks.task import SpecialTokens, Task


class Similarity(Task):
    """How alike two texts are: a label or a score."""

    kind = "similarity"
    columns = ("first", "second")
    texts_at_once = 2
    answers = ("label", "score")
    hub_name = "sentence-similarity"
    input = (
        "Input: `<|start|>` first `<|delimiter|>` second `<|extract|>`, and the same with the "
        "texts exchanged; the two hidden states are added."
    )
    example = 'score(state("a text", "another") + state("another", "a text"))'

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        """Both orders."""
        first, second = texts
        return [special.around(first, second), special.around(second, first)]
