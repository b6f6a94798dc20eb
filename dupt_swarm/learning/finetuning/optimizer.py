"""AdamW with linear warm-up and decay, and clipped gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.learning.strategies.flat import clip_gradients
from dupt_swarm.manifest import Inner


class DecayingAdamW:
    """A `Trainer`'s optimizer, for a known number of updates."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], settings: FinetuningSettings, updates: int
    ) -> None:
        """``updates``: after so many the learning rate is 0."""
        self._parameters, self._settings, self._updates = list(parameters), settings, updates
        self._warmup = round(settings.warmup_ratio * updates)
        self._done = 0
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
        return self._settings.learning_rate * linear_factor(self._done, self._warmup, self._updates)

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


def linear_factor(update: int, warmup: int, updates: int) -> float:
    """The learning rate at ``update`` (from 0) ÷ its peak: it rises for ``warmup`` updates, then falls to 0.

    The published code begins with an update of learning rate 0; here each update counts.
    """
    if update < warmup:
        return (update + 1) / (warmup + 1)
    return max(0.0, (updates - update) / (updates - warmup))
