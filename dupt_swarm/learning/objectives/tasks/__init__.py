"""The tasks, by what `objective.kind` names, and their input transformations (section 3.3 and figure 1).

classification   ⟨s⟩ text ⟨e⟩
entailment       ⟨s⟩ premise $ hypothesis ⟨e⟩
similarity       both orders, each processed by itself, added before W_y
multiple_choice  ⟨s⟩ context $ choice ⟨e⟩ for each choice
text             a text out of a row
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn

from dupt_swarm.learning.objectives.special import SpecialTokens
from dupt_swarm.learning.objectives.tasks.classification import Classification
from dupt_swarm.learning.objectives.tasks.entailment import Entailment
from dupt_swarm.learning.objectives.tasks.multiple_choice import MultipleChoice
from dupt_swarm.learning.objectives.tasks.similarity import Similarity


class Task(Protocol):
    """One task: how its examples become sequences, and what these say together.

    Attributes:
        columns: the names of the inputs.
        texts_at_once: how many texts a sequence holds; they share the context.
        answers: what they may be: ``label``, ``score`` or ``choice``; see `answers`.
    """

    columns: tuple[str, ...]
    texts_at_once: int
    answers: tuple[str, ...]

    def texts(self, row: Mapping[str, object]) -> list[str]:
        """The texts of a row, to be tokenised one by one.

        Raises:
            ValueError: an input is not what it should be; says which, and what it should be.
        """

    def sequences(self, texts: list[list[int]], special: SpecialTokens) -> list[list[int]]:
        """The sequences of an example, from the tokens of its `texts`, which are short enough."""

    def logits(self, head: nn.Linear, extracted: Tensor, real: Tensor) -> Tensor:
        """[B, outputs] from h_l^m of each sequence.

        Args:
            head: W_y.
            extracted: [B, S, C].
            real: bool [B, S], whether a sequence is there.
        """


TASKS: dict[str, Task] = {
    "classification": Classification(),
    "entailment": Entailment(),
    "similarity": Similarity(),
    "multiple-choice": MultipleChoice(),
}
