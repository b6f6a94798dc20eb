"""Epochs of training and validation; the best epoch counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from dupt_swarm.errors import DuptError
from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.interruptible import parameter_count, sequences_at_once
from dupt_swarm.learning.labelled.encoded import EncodedBatches
from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.strategies.flat import clip_gradients, flatten, unflatten
from dupt_swarm.learning.trainer import Trainer
from dupt_swarm.manifest import Inner, Schedule


class DecayingAdamW:
    """A `Trainer`'s optimizer, for a known number of updates."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], settings: FinetuningSettings, updates: int
    ) -> None:
        """``updates``: after so many the learning rate is 0.

        In the published code the first one has the learning rate 0, too; here each update counts.
        """
        self._parameters, self._settings, self._done = list(parameters), settings, 0
        warmup = round(settings.warmup_ratio * updates)
        self._schedule = Schedule(decay="linear", warmup_updates=warmup, total_updates=updates)
        self._inner = build_inner(
            self._parameters,
            Inner(
                optimizer="adamw",
                learning_rate=settings.learning_rate,
                weight_decay=settings.weight_decay,
            ),
        )

    @property
    def learning_rate(self) -> float:
        """Of the next update."""
        return self._settings.learning_rate * self._schedule.factor(self._done)

    def step(self, *, tokens: int) -> None:
        """See `Trainer`'s `Optimizer`. The step size does not depend on the number of tokens."""
        del tokens
        clip_gradients(self._parameters, self._settings.clip_norm)
        for group in self._inner.param_groups:
            group["lr"] = self.learning_rate
        self._inner.step()
        self._done += 1

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._inner.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on, besides the parameters."""
        return {"done": self._done, "inner": self._inner.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after ``state``."""
        self._done = state["done"]
        self._inner.load_state_dict(state["inner"])


SAVE_SECONDS = 300.0  # between two saves within an epoch


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Attributes:
        number: from 1.
        train_loss: mean of L3's loss over the training examples, while it was falling.
        loss: that of the answers, L2's, on the validation examples.
        scores: by name.
    """

    number: int
    train_loss: float
    loss: float
    scores: dict[str, float]


@dataclass(frozen=True)
class Moment:
    """How far a fine-tuning is.

    Attributes:
        epoch: from 1.
        done: updates of all epochs, or validation batches.
        total: how many there will be.
        loss: mean since the epoch began; None before its first update.
    """

    doing: Literal["training", "validating"]
    epoch: int
    done: int
    total: int
    loss: float | None = None


class FineTuning:
    """Learns a task; what it holds can be saved between two updates, and gone on with.

    Attributes:
        epochs: those that are over.
        best: the one that counts: by the answers' criterion, then by loss; None before the first is over.
        best_parameters: the model after it, flat.
    """

    def __init__(
        self,
        model: TaskModel,
        train: Examples,
        valid: Examples,
        settings: FinetuningSettings,
        device: torch.device,
    ) -> None:
        """``model`` is on ``device`` already."""
        self.model, self._valid, self._device, self._settings = model, valid, device, settings
        size = parameter_count(model), max(train.length_max, valid.length_max), device
        most = max(train.sequences_max, valid.sequences_max)
        self._at_once = max(1, sequences_at_once(settings.batch_size * most, *size) // most)
        self._per_epoch = -(-len(train) // settings.batch_size)
        self.updates = self._per_epoch * settings.epochs
        self._optimizer = DecayingAdamW(model.parameters(), settings, self.updates)
        batches = EncodedBatches(train, settings.batch_size, settings.seed, "", across_epochs=False)
        self._trainer = Trainer(model, self._optimizer, batches, device, examples_at_once=self._at_once)
        self._done = 0
        self.epochs: list[Epoch] = []
        self.best: Epoch | None = None
        self.best_parameters: Tensor | None = None
        self._forget_loss()
        torch.manual_seed(settings.seed)  # of dropout; a saved state brings its own

    def run(self, on_moment: Callable[[Moment], object], save: Callable[[dict[str, Any]], object]) -> Epoch:
        """Learn until all epochs are over; the best one.

        Args:
            on_moment: called before each micro-batch; may raise `Abandoned`.
            save: given a state to keep, after each epoch and now and then.

        Raises:
            Abandoned: ``on_moment`` raised it; `state_dict` is then to go on with.
            DuptError: the loss is not finite.
        """
        saved = time.monotonic()
        while len(self.epochs) < self._settings.epochs:
            over = self._done == self._per_epoch * (len(self.epochs) + 1)
            if over:
                self._finish_epoch(on_moment)
            else:
                self._update(on_moment)
            if over or time.monotonic() - saved > SAVE_SECONDS:
                save(self.state_dict())
                saved = time.monotonic()
        assert self.best is not None
        return self.best

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on and end with the same model, bit for bit on the same CPU."""
        return {
            "done": self._done,
            "loss": (self._loss_sum, self._tokens),
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "best": None if self.best is None else self.best.number,
            "best_parameters": self.best_parameters,
            "parameters": flatten(list(self.model.parameters())),
            "optimizer": self._optimizer.state_dict(),
            "trainer": self._trainer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after ``state``."""
        self._done = state["done"]
        loss_sum, self._tokens = state["loss"]
        self._loss_sum = loss_sum.to(self._device)
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.best = next((epoch for epoch in self.epochs if epoch.number == state["best"]), None)
        self.best_parameters = state["best_parameters"]
        unflatten(state["parameters"], list(self.model.parameters()))
        self._optimizer.load_state_dict(state["optimizer"])
        self._trainer.load_state_dict(state["trainer"])

    def _update(self, on_moment: Callable[[Moment], object]) -> None:
        number, loss = len(self.epochs) + 1, self._mean_loss()
        moment = Moment("training", number, self._done, self.updates, loss)
        before = self._trainer.state_dict() | {"scale": None}
        while not (step := self._trainer.step(lambda *_: on_moment(moment))).tokens:
            # Its gradients were beyond fp16. There may be too few updates for any to be lost.
            self._trainer.load_state_dict(before)
        self._done += 1
        self._loss_sum = self._loss_sum + step.loss * step.tokens
        self._tokens += step.tokens

    def _finish_epoch(self, on_moment: Callable[[Moment], object]) -> None:
        number, train_loss = len(self.epochs) + 1, self._mean_loss()
        assert train_loss is not None
        batches = self._valid.in_order(
            self._at_once,
            lambda done, total: on_moment(Moment("validating", number, done, total, train_loss)),
        )
        found = evaluate_task(self.model, batches, self._device)
        if not (math.isfinite(train_loss) and math.isfinite(found.loss)):
            raise DuptError(
                f"the loss is not finite in epoch {number}; start again with a lower learning rate",
                setting="learning_rate",
            )
        epoch = Epoch(number, train_loss, found.loss, found.scores)
        self.epochs.append(epoch)
        if self.best is None or self._worth(epoch) > self._worth(self.best):
            self.best = epoch
            self.best_parameters = flatten(list(self.model.parameters())).cpu()
        self._forget_loss()

    def _worth(self, epoch: Epoch) -> tuple[float, float]:
        """To compare epochs by; a score that is no number is worth nothing."""
        score = epoch.scores[self.model.answer.criterion]
        return (-math.inf if math.isnan(score) else score, -epoch.loss)

    def _mean_loss(self) -> float | None:
        return float(self._loss_sum) / self._tokens if self._tokens else None

    def _forget_loss(self) -> None:
        self._loss_sum, self._tokens = torch.zeros((), device=self._device), 0
