"""What is measured on text that is held out here, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from dupt_swarm.learning.device import as_written, halved, is_out_of_memory
from dupt_swarm.learning.interruptible import Look
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.quality import Quality

# Of the time, at most, goes into evaluations; the larger part as long as that makes few seconds.
TIME_RATIO, TIME_RATIO_LASTING = 0.02, 0.004
SECONDS = 30.0


class HeldOutText:
    """Measures the model on it, beside what training has on the device.

    Attributes:
        sequences: how many at once. Where the memory does not suffice there will be fewer; those of a
            training step stay.
    """

    def __init__(
        self, objective: TrainingObjective, model: nn.Module, device: torch.device, sequences: int
    ) -> None:
        """``model`` is on ``device``; for the others see `TrainingObjective.measure_held_out`."""
        self._objective, self._model, self._device = objective, model, device
        self.sequences = sequences

    def measure(self, blocks: int, look: Look, first: int = 0) -> Quality:
        """How good the model is, with the values that its parameters have, on ``blocks`` blocks at most.

        They begin with block ``first``.

        Raises:
            Abandoned: ``look`` raised it.
            DeviceError: there is not even room for one sequence.
        """
        while True:
            try:
                with as_written(self._model):
                    return self._objective.measure_held_out(
                        self._model, self._device, self.sequences, blocks, look, first
                    )
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
            # Here the error is gone, and with it the memory that its traceback refers to.
            self.sequences = halved(self.sequences, self._device, "measuring")


class HeldOut:
    """Evaluates when due, so that evaluation takes at most `TIME_RATIO_LASTING` of the time.

    As long as it has taken `SECONDS` only, it may take `TIME_RATIO`: at first most changes.

    Attributes:
        first: at the start, latest: the last one; None if not done yet.
    """

    def __init__(self, evaluate: Callable[[], Quality]) -> None:
        """``evaluate`` measures the model as it is now."""
        self._evaluate = evaluate
        self._next = self._taken = 0.0
        self.first: Quality | None = None
        self.latest: Quality | None = None

    def measure(self) -> None:
        """Measure now."""
        started = time.monotonic()
        self.latest = self._evaluate()
        self.first = self.first or self.latest
        now = time.monotonic()
        self._taken += now - started
        ratio = TIME_RATIO if self._taken <= SECONDS else TIME_RATIO_LASTING
        self._next = now + (now - started) / ratio

    def measure_if_due(self) -> None:
        """Measure if the last measurement is old enough."""
        if time.monotonic() >= self._next:
            self.measure()
