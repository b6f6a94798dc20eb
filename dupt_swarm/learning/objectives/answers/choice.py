"""An answer that is one of an example's choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dupt_swarm.learning.objectives.answers.numbers import number_in
from dupt_swarm.learning.objectives.answers.probabilities import softmax
from dupt_swarm.learning.objectives.libraries import import_for_scores
from dupt_swarm.learning.objectives.supervised import classification_loss


class Choice:
    """The index of the right choice, from 0."""

    outputs = 1
    dtype = torch.int64
    criterion = "accuracy"

    def read(self, value: object, choices: int) -> float:
        """See `Answer`."""
        number = number_in(value)
        if number not in range(choices):
            raise ValueError(
                f"label {value!r} is not the index of one of {choices} choices, 0 to {choices - 1}"
            )
        return number

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """See `Answer`."""
        return classification_loss(logits, labels)

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Accuracy."""
        metrics = import_for_scores("sklearn.metrics")
        return {"accuracy": float(metrics.accuracy_score(labels.numpy(), logits.argmax(1).numpy()))}

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """The likeliest choice, and the probability of each that is there."""
        probabilities = softmax([logit for logit in logits if logit > -math.inf])
        return {"label": probabilities.index(max(probabilities)), "probabilities": probabilities}
