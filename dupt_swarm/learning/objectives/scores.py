"""How good the answers of a task model are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.answers import build_answer
from dupt_swarm.learning.device import autocast
from dupt_swarm.learning.evaluation import evaluating
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.manifest import Objective

TaskBatch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class TaskEvaluation:
    """The answers of a task model to labelled examples.

    Attributes:
        loss: −L2 ÷ N in nats; the mean squared error of scores.
        logits: fp32 [N, outputs] on the CPU.
        labels: [N].
    """

    objective: Objective
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
        return build_answer(self.objective).scores(self.logits, self.labels)


@torch.no_grad()
def evaluate_task(model: TaskModel, batches: Iterable[TaskBatch], device: torch.device) -> TaskEvaluation:
    """Compare what ``model`` answers with the labels; restores its mode afterwards.

    Args:
        model: on ``device`` already.
        batches: ``(tokens, lengths, labels)`` on the CPU; see `TaskModel.forward`.
        device: where to compute.

    Raises:
        CorpusError: there are no examples.
    """
    true: list[Tensor] = []

    def noted() -> Iterator[TaskBatch]:
        for batch in batches:
            true.append(batch[2])
            yield batch

    logits = ask(model, noted(), device)
    labels = torch.cat(true)
    return TaskEvaluation(model.objective, float(model.answer.loss(logits, labels)), logits, labels)


@torch.no_grad()
def ask(model: TaskModel, batches: Iterable[TaskBatch], device: torch.device) -> Tensor:
    """The logits of all examples, fp32 [N, outputs] on the CPU; arguments as for `evaluate_task`.

    Raises:
        CorpusError: there are no examples.
    """
    found: list[Tensor] = []
    with evaluating(model):
        for tokens, lengths, _ in batches:
            with autocast(device):
                found.append(model.logits(tokens.to(device), lengths.to(device)))
    if not found:
        raise CorpusError("there are no labelled examples to evaluate on; give some")
    # An example may have fewer choices than another.
    most = max(logits.size(1) for logits in found)
    return torch.cat([F.pad(logits.cpu(), (0, most - logits.size(1)), value=-math.inf) for logits in found])
