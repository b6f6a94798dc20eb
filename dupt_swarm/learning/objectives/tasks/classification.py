"""Classification: ⟨s⟩ text ⟨e⟩."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from dupt_swarm.learning.objectives.special import SpecialTokens
from dupt_swarm.learning.objectives.tasks.text import text_of


class Classification:
    """Which label a text has."""

    columns: tuple[str, ...] = ("text",)
    texts_at_once = 1
    answers: tuple[str, ...] = ("label",)

    def texts(self, row: Mapping[str, object]) -> list[str]:
        """See `Task`."""
        return [text_of(row, name) for name in self.columns]

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        """See `Task`."""
        return [special.around(*texts)]

    def logits(self, head: nn.Linear, extracted: Tensor, real: Tensor) -> Tensor:
        """h_l^m·W_y of the only sequence."""
        del real
        return head(extracted[:, 0])  # type: ignore[no-any-return]
