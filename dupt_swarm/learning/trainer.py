"""Plain PyTorch inner steps; the optimizer is handed in, whatever else it does."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.batches import Batch, BatchSource, count_examples, pieces
from dupt_swarm.learning.data_parallel.workers import WorkerMemoryError, Workers
from dupt_swarm.learning.device import (
    NOT_COMPILED,
    Arriving,
    autocast,
    halved,
    is_out_of_memory,
    loss_scaler,
    on,
    product_dtype,
    run_as_written,
    shortly,
    use_fp32,
)
from dupt_swarm.learning.interruptible import Look
from dupt_swarm.learning.stopwatch import Observer, Stopwatch, build_stopwatch

EXAMPLES_MAX = 1 << 30  # no limit until memory runs out

logger = logging.getLogger(__name__)


class Optimizer(Protocol):
    """What the trainer needs of an optimizer."""

    def step(self, *, tokens: int) -> object:
        """Update the parameters from the mean gradient over ``tokens`` tokens."""

    def zero_grad(self) -> object:
        """Forget the gradients."""


@dataclass(frozen=True)
class Step:
    """What one inner step did.

    Attributes:
        loss: mean over the step's examples in nats, detached, 0-d and still on the device: reading it waits.
        tokens: what its examples count for; 0: its gradients were beyond fp16, and nothing was learnt.
    """

    loss: Tensor
    tokens: int


class Trainer:
    """Runs inner steps of a model that is on ``device`` already."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        batches: BatchSource,
        device: torch.device,
        micro_batches: int = 1,
        examples_at_once: int = EXAMPLES_MAX,
        workers: Workers | None = None,
    ) -> None:
        """A step takes ``micro_batches`` of ``batches``, and cuts them to ``examples_at_once`` if need be.

        ``model(*batch)`` gives the mean loss of a batch's examples. ``workers`` compute parts of each batch.
        """
        self.model = model
        self.optimizer = optimizer
        self.device = device
        self.micro_batches = micro_batches
        self._batches = batches
        self._position = batches.state_dict()
        self._next: _Dealt | None = None
        self._examples = examples_at_once
        self._short_of_memory: torch.device | None = None
        self._watch = Stopwatch()
        self._scaler, self._learner = loss_scaler(device), _Learner(model, optimizer)
        self._workers = workers or Workers(model)

    def observe(self, observer: Observer) -> None:
        """From now on report each step's tokens and the seconds of its phases to ``observer``."""
        self._watch = build_stopwatch(self.device, observer)

    def step(self, look: Look = lambda *_: None) -> Step:
        """One inner step: gradients are the mean over all examples of its micro-batches.

        Args:
            look: called before each micro-batch with how many of how many are done.

        Raises:
            Abandoned: ``look`` raised it; the next step does the same again from its beginning.
            DeviceError: there is not even room for one example, or a device is lost.
        """
        watch = self._watch
        watch.start()
        self.model.train()
        dealt = self._next or self._fetch()
        tokens = dealt.examples * self._batches.tokens_per_example
        watch.lap("data")
        random = _random_state(self.device)
        try:
            while (loss := self._accumulate(dealt, look)) is None:
                self.optimizer.zero_grad()
                if self._short_of_memory:
                    at_once = min(self._examples, max(count_examples(batch) for batch in dealt.own))
                    self._examples = halved(at_once, self._short_of_memory, "training on")
                _restore_random_state(random, self.device)
        except Exception:  # given up, or a device is lost: the next step does the same again
            self._next = dealt
            _restore_random_state(random, self.device)
            self.optimizer.zero_grad()
            raise
        # A GPU is still busy with the above while the CPU reads what comes next.
        self._position = self._batches.state_dict()
        self._next = self._fetch()
        watch.lap("data")
        learnt = self._learn(tokens)
        self.optimizer.zero_grad()
        watch.lap("optimizer")
        watch.finish(learnt)
        return Step(loss, learnt)

    def _learn(self, tokens: int) -> int:
        """Let the optimizer use the gradients; returns ``tokens``, or 0 where one is beyond fp16."""
        learnt = self._scaler.step(self._learner, tokens=tokens)  # type: ignore[arg-type]
        self._scaler.update()
        if self._scaler.is_enabled() and self._scaler.get_scale() < 1:
            logger.warning("fp16 does not suffice for this model: going on in fp32, which is slower")
            use_fp32(self.device)
            self._scaler = loss_scaler(self.device)
        return int(learnt or 0)

    def rest(self) -> None:
        """Leave the workers' devices to others until the next step."""
        self._workers.rest()

    def close(self) -> None:
        """End the workers; the next step is this process's alone."""
        if self._workers.devices > 1:
            self._workers.close()
            self._batches.load_state_dict(self._position)  # what comes next was dealt to all
            self._next = None

    def state_dict(self) -> dict[str, Any]:
        """The position in the batches, the state of the random numbers of dropout, and the loss's scale."""
        return {
            "batches": self._position,
            "random": _random_state(self.device),
            "scale": self._scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from ``state``: on the same device, the losses are those of a trainer that never stopped.

        On a GPU they are nearly so: some of its kernels, such as flash attention's backward, add up in
        another order each time.

        Raises:
            CheckpointError: ``state`` is not a trainer's.
        """
        try:
            position, random = dict(state["batches"]), dict(state["random"])
            if self._scaler.is_enabled() and (scale := state.get("scale")):
                self._scaler.load_state_dict(dict(scale))
            _restore_random_state(random, self.device)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"not the state of a trainer ({error}); resume from another checkpoint"
            ) from error
        self._batches.load_state_dict(position)
        self._position, self._next = position, None

    def _accumulate(self, dealt: _Dealt, look: Look) -> Tensor | None:
        """The mean loss, with its gradients in the parameters; None: it failed, and may succeed now."""
        several = self._workers.devices > 1
        scale = self._scaler.get_scale() if several else 1.0  # to read it waits for the device
        own = list(pieces(dealt.own, self._examples))
        how = self._examples, product_dtype(self.device), scale, lambda: look(len(own), len(own))
        with self._workers.computing(dealt.others, dealt.examples, *how) as gather:
            loss = torch.zeros((), device=self.device)
            for number, piece in enumerate(own):
                look(number, len(own))
                try:
                    with autocast(self.device):
                        part = self.model(*piece) * (count_examples(piece) / dealt.examples)
                    self._watch.lap("forward")
                    self._scaler.scale(part).backward()
                    loss += part.detach()
                    self._watch.lap("backward")
                except Exception as error:
                    if not self._may_succeed_after(error):
                        raise
                    return None
            try:
                loss = gather(loss)
            except WorkerMemoryError as error:
                self._short_of_memory = error.device
                return None
            self._watch.lap("backward")
            return loss

    def _may_succeed_after(self, error: Exception) -> bool:
        """Whether the same may succeed with less memory, or as written, if compiling the model failed."""
        self._short_of_memory = self.device if is_out_of_memory(error) else None
        if self._short_of_memory:
            return True
        compiled = run_as_written(self.model)
        if compiled:
            logger.warning("%s: %s", NOT_COMPILED, shortly(error))
        return compiled

    def _fetch(self) -> _Dealt:
        dealt = [self._workers.deal(next(self._batches)) for _ in range(self.micro_batches)]
        own, *others = (
            [part for part in parts if count_examples(part)] for parts in zip(*dealt, strict=True)
        )
        examples = sum(count_examples(part) for parts in dealt for part in parts)
        here = [tuple(on(self.device, tensor) for tensor in part) for part in own]
        return _Dealt(here, others, examples)


@dataclass(frozen=True)
class _Dealt:
    """The batches of a step.

    Attributes:
        own: this process's parts of them, on its device.
        others: those of each worker.
        examples: how many all have.
    """

    own: list[Batch]
    others: list[list[Batch]]
    examples: int


class _Learner:
    """The optimizer as a `GradScaler` wants it.

    Attributes:
        param_groups: whose gradients are scaled.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.param_groups = [{"params": list(model.parameters())}]
        self._optimizer = optimizer

    def step(self, *, tokens: int) -> int:
        """Gradients are as they would be without a scale, and finite; returns ``tokens``."""
        self._optimizer.step(tokens=tokens)
        return tokens


class LossMeter:
    """The mean loss since the last reading, of steps that the device has done: nobody waits for it."""

    def __init__(self) -> None:
        self._coming: deque[Arriving] = deque()
        self.mean: float | None = None

    def add(self, step: Step) -> None:
        """Take note of a step."""
        self._coming.append(Arriving(step.loss))

    def read(self) -> None:
        """Bring ``mean`` up to date, nats per token."""
        losses = []
        while self._coming and self._coming[0].here:
            losses.append(self._coming.popleft().number)
        if losses:
            self.mean = sum(losses) / len(losses)


def _random_state(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def _restore_random_state(states: Mapping[str, Tensor], device: torch.device) -> None:
    """A state for another kind of device is ignored: checkpoints may move between machines."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
