"""What an answer is: how it is read, what its loss is, how it is scored.

label           one of the objective's labels
choice          one of an example's choices
score           a number
numbers         in cells of a table
probabilities   softmax for people to read
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from dupt_swarm.learning.objectives.answers.choice import Choice
from dupt_swarm.learning.objectives.answers.label import Label
from dupt_swarm.learning.objectives.answers.score import Score
from dupt_swarm.manifest import Objective


class Answer(Protocol):
    """One kind of answer.

    Attributes:
        outputs: rows of W_y.
        dtype: of the labels in a batch.
        criterion: the score by which epochs are compared; more is better.
    """

    outputs: int
    dtype: torch.dtype
    criterion: str

    def read(self, value: object, choices: int) -> float:
        """What a row gives, as a number: the index of a label or choice, or the score.

        Args:
            value: of the row's label.
            choices: how many sequences the example has.

        Raises:
            ValueError: it is none; says why.
        """

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss over examples: fp32 logits [B, outputs or choices], labels [B] of `dtype`."""

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """The usual figures by name, from the logits and labels of all examples."""

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """One example's answer in words, with its probabilities."""


def build_answer(objective: Objective) -> Answer:
    """What the objective's answers are."""
    if objective.labels:
        return Label(tuple(objective.labels))
    return Choice() if objective.kind == "multiple-choice" else Score()
