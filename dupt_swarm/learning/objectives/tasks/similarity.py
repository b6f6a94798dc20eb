"""Similarity: ⟨s⟩ first $ second ⟨e⟩ and ⟨s⟩ second $ first ⟨e⟩, for neither text comes before the other."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from dupt_swarm.learning.objectives.special import SpecialTokens
from dupt_swarm.learning.objectives.tasks.text import text_of


class Similarity:
    """How alike two texts are: a label or a score."""

    columns: tuple[str, ...] = ("first", "second")
    texts_at_once = 2
    answers: tuple[str, ...] = ("label", "score")

    def texts(self, row: Mapping[str, object]) -> list[str]:
        """See `Task`."""
        return [text_of(row, name) for name in self.columns]

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        """See `Task`."""
        first, second = texts
        return [special.around(first, second), special.around(second, first)]

    def logits(self, head: nn.Linear, extracted: Tensor, real: Tensor) -> Tensor:
        """The sum of both orders' h_l^m, times W_y."""
        del real
        return head(extracted.sum(1))  # type: ignore[no-any-return]
