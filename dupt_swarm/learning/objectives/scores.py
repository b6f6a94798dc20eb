"""How good the answers of a task model are."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.answers import Answer
from dupt_swarm.learning.device import autocast
from dupt_swarm.learning.evaluation import evaluating
from dupt_swarm.learning.labelled.examples import ExampleBatch
from dupt_swarm.learning.objectives.task_model import TaskModel


@dataclass(frozen=True)
class TaskEvaluation:
    """The answers of a task model to labelled examples.

    Attributes:
        answer: what an answer is.
        loss: −L2 ÷ N in nats; the mean squared error of scores.
        logits: fp32 [N, outputs] on the CPU.
        labels: [N].
    """

    answer: Answer
    loss: float
    logits: Tensor
    labels: Tensor

    @property
    def examples(self) -> int:
        """How many there were."""
        return len(self.labels)

    @property
    def accuracy(self) -> float | None:
        """The share of right answers, which needs no library; None for scores."""
        if self.labels.is_floating_point():
            return None
        return int((self.logits.argmax(1) == self.labels).sum()) / self.examples

    @cached_property
    def scores(self) -> dict[str, float]:
        """The usual figures by name; see `Answer.scores`."""
        return self.answer.scores(self.logits, self.labels)


@torch.no_grad()
def evaluate_task(model: TaskModel, batches: Iterable[ExampleBatch], device: torch.device) -> TaskEvaluation:
    """Compare what ``model`` answers with the labels; restores its mode afterwards.

    Args:
        model: on ``device`` already.
        batches: ``(tokens, lengths, labels)`` on the CPU; see `TaskModel.forward`.
        device: where to compute.

    Raises:
        CorpusError: there are no examples.
    """
    logits, labels = ask(model, batches, device)
    return TaskEvaluation(model.answer, float(model.answer.loss(logits, labels)), logits, labels)


@torch.no_grad()
def ask(model: TaskModel, batches: Iterable[ExampleBatch], device: torch.device) -> tuple[Tensor, Tensor]:
    """The logits of all examples, fp32 [N, outputs], and their labels, [N], on the CPU; see `evaluate_task`.

    Raises:
        CorpusError: there are no examples.
    """
    found: list[Tensor] = []
    true: list[Tensor] = []
    with evaluating(model):
        for tokens, lengths, labels in batches:
            true.append(labels)
            with autocast(device):
                found.append(model.logits(tokens.to(device), lengths.to(device)))
    if not found:
        raise CorpusError("there are no labelled examples to evaluate on; give some")
    # An example may have fewer choices than another.
    most = max(logits.size(1) for logits in found)
    padded = [F.pad(logits.cpu(), (0, most - logits.size(1)), value=-math.inf) for logits in found]
    return torch.cat(padded), torch.cat(true)
