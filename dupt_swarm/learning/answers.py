"""What an answer to a task is: a label, one of several choices, or a score.

How it is read, what its loss is, how W_y gives it and how it is scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.errors import UsageError, install
from dupt_swarm.learning.reading import well_formed
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

    def logits(self, head: nn.Linear, extracted: Tensor, real: Tensor) -> Tensor:
        """[B, outputs or choices] from h_l^m of each sequence.

        Args:
            head: W_y.
            extracted: [B, S, C].
            real: bool [B, S], whether a sequence is there.
        """

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss over examples: fp32 logits [B, outputs or choices], labels [B] of `dtype`."""

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """The usual figures by name, from the logits and labels of all examples, by scikit-learn and scipy.

        Args:
            logits: fp32 [N, outputs], as `TaskModel.logits` gives them.
            labels: [N].

        Raises:
            UsageError: the library is not installed.
        """

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """One example's answer in words, with its probabilities."""


def build_answer(objective: Objective) -> Answer:
    """What the objective's answers are."""
    if objective.answer == "label":
        return Label(tuple(objective.labels))
    return Choice() if objective.answer == "choice" else Score()


class _OfTheExample:
    """An answer that all sequences of an example give together."""

    def logits(self, head: nn.Linear, extracted: Tensor, real: Tensor) -> Tensor:
        """The sum of the sequences' h_l^m, times W_y."""
        del real
        return head(extracted.sum(1))  # type: ignore[no-any-return]


class Label(_OfTheExample):
    """One of several labels."""

    dtype = torch.int64
    criterion = "accuracy"

    def __init__(self, labels: tuple[str, ...]) -> None:
        """``labels``: in the order of W_y."""
        self._labels = labels
        self._numbers = {label: number for number, label in enumerate(labels)}
        self.outputs = len(labels)

    def read(self, value: object, choices: int) -> float:
        del choices
        label = name_of(value)
        if label not in self._numbers:
            known = ", ".join(map(repr, self._labels))
            raise ValueError(f"label {label!r} is unknown: there are {known}")
        return self._numbers[label]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """−L2 ÷ B: the mean of −log softmax(logits)[label], in nats."""
        return F.cross_entropy(logits, labels)

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Accuracy, F1 (of the second label if there are two, else the mean over labels) and Matthews'."""
        require_scores()
        from sklearn import metrics  # an optional package

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
    """The label that a row gives: text as it is (but for half a surrogate pair), a number as it is written.

    Raises:
        ValueError: there is none.
    """
    if isinstance(value, float) and math.isfinite(value):  # whole where a column has empty cells too
        return str(int(value) if value.is_integer() else value)
    if isinstance(value, str | int) and str(value):
        return well_formed(str(value))
    raise ValueError("there is no label" if value in (None, "") else f"{value!r} is no label")


class Choice:
    """The index of the right choice, from 0."""

    outputs = 1
    dtype = torch.int64
    criterion = "accuracy"

    def read(self, value: object, choices: int) -> float:
        number = number_in(value)
        if number not in range(choices):
            raise ValueError(
                f"label {value!r} is not the index of one of {choices} choices, 0 to {choices - 1}"
            )
        return number

    def logits(self, head: nn.Linear, extracted: Tensor, real: Tensor) -> Tensor:
        """h_l^m·W_y of each choice; −∞, that is probability 0, where there is none."""
        return head(extracted).squeeze(2).masked_fill(~real, -math.inf)  # type: ignore[no-any-return]

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """−L2 ÷ B: the mean of −log softmax(logits)[label], in nats."""
        return F.cross_entropy(logits, labels)

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Accuracy."""
        require_scores()
        from sklearn import metrics  # an optional package

        return {"accuracy": float(metrics.accuracy_score(labels.numpy(), logits.argmax(1).numpy()))}

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """The likeliest choice, and the probability of each that is there."""
        probabilities = softmax([logit for logit in logits if logit > -math.inf])
        return {"label": probabilities.index(max(probabilities)), "probabilities": probabilities}


class Score(_OfTheExample):
    """A number, such as how alike two texts are; W_y gives it directly."""

    outputs = 1
    dtype = torch.float32
    criterion = "spearman"

    def read(self, value: object, choices: int) -> float:
        del choices
        number = number_in(value)
        if not math.isfinite(number):
            raise ValueError(f"label {value!r} is not a number")
        if abs(number) > torch.finfo(self.dtype).max:
            raise ValueError(f"label {value!r} is infinite in fp32, in which scores are learnt")
        return number

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean squared error of scores [B, 1]."""
        return F.mse_loss(logits.squeeze(1), labels)

    def scores(self, logits: Tensor, labels: Tensor) -> dict[str, float]:
        """Pearson's and Spearman's correlations; not a number where all are alike."""
        require_scores()
        from scipy import stats

        found, true = logits.squeeze(1).numpy(), labels.numpy()
        if len(true) < 2 or len(set(true.tolist())) < 2 or len(set(found.tolist())) < 2:
            return {"pearson": math.nan, "spearman": math.nan}
        return {
            "pearson": float(stats.pearsonr(true, found).statistic),
            "spearman": float(stats.spearmanr(true, found).statistic),
        }

    def describe(self, logits: Sequence[float]) -> dict[str, Any]:
        """The score."""
        return {"label": logits[0]}


def number_in(value: object) -> float:
    """The number that a cell holds, spelt out or not; NaN if it holds none."""
    if not isinstance(value, str | int | float):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities that sum to 1."""
    probabilities: list[float] = torch.tensor(logits, dtype=torch.float64).softmax(0).tolist()
    return probabilities


def require_scores() -> None:
    """See beforehand, without importing them, that what computes scores is installed.

    Raises:
        UsageError: it is not.
    """
    for name, package in (("sklearn", "scikit-learn"), ("scipy", "scipy")):
        if find_spec(name) is None:
            raise UsageError(f"scores need {package}; {install('model')}")
