"""An answer that is one of the objective's labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dupt_swarm.learning.objectives.answers.probabilities import softmax
from dupt_swarm.learning.objectives.libraries import import_for_scores
from dupt_swarm.learning.objectives.supervised import classification_loss


class Label:
    """One of several labels."""

    dtype = torch.int64
    criterion = "accuracy"

    def __init__(self, labels: tuple[str, ...]) -> None:
        """``labels``: in the order of W_y."""
        self._labels = labels
        self._numbers = {label: number for number, label in enumerate(labels)}
        self.outputs = len(labels)

    def read(self, value: object, choices: int) -> float:
        """See `Answer`."""
        del choices
        label = name_of(value)
        if label not in self._numbers:
            known = ", ".join(map(repr, self._labels))
            raise ValueError(f"label {label!r} is unknown: there are {known}")
        return self._numbers[label]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """See `Answer`."""
        return classification_loss(logits, labels)

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Accuracy, F1 (of the second label if there are two, else the mean over labels) and Matthews'."""
        metrics = import_for_scores("sklearn.metrics")
        found, true = logits.argmax(1).numpy(), labels.numpy()
        average = "binary" if self.outputs == 2 else "macro"
        present = None if self.outputs == 2 else list(range(self.outputs))
        return {
            "accuracy": float(metrics.accuracy_score(true, found)),
            "f1": float(metrics.f1_score(true, found, labels=present, average=average, zero_division=0.0)),
            "matthews": float(metrics.matthews_corrcoef(true, found)),
        }

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """The likeliest label, and the probability of each."""
        probabilities = dict(zip(self._labels, softmax(logits), strict=True))
        return {
            "label": max(probabilities, key=probabilities.__getitem__),
            "probabilities": probabilities,
        }


def name_of(value: object) -> str:
    """The label that a row gives: text as it is, a number as it is written.

    Raises:
        ValueError: there is none.
    """
    if isinstance(value, float) and math.isfinite(value):  # whole where a column has empty cells too
        return str(int(value) if value.is_integer() else value)
    if isinstance(value, str | int) and str(value):
        return str(value)
    raise ValueError("there is no label" if value in (None, "") else f"{value!r} is no label")
