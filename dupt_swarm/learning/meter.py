"""The mean loss of some steps."""

from __future__ import annotations

from dupt_swarm.learning.trainer import Step


class LossMeter:
    """The mean loss since the last reading, without waiting for the device in between."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self.mean: float | None = None

    def add(self, step: Step) -> None:
        """Take note of a step."""
        self._steps.append(step)

    def read(self) -> None:
        """Bring ``mean`` up to date, nats per token."""
        if self._steps:
            self.mean = sum(float(step.loss) for step in self._steps) / len(self._steps)
            self._steps.clear()
