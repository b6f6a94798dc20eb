"""Synchronous data parallelism: each round is one large batch and one outer optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dupt_swarm.learning.device import on
from dupt_swarm.learning.strategies.flat import clip_gradients, move_to, pieces, unflatten
from dupt_swarm.manifest import Manifest


class Gradient:
    """A `Strategy`: contributes the mean gradient since the last round; the parameters stay at the anchor."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], manifest: Manifest, anchor: Tensor, **_: object
    ) -> None:
        """See `build_strategy`; all parameters are alike here, and there are no moments."""
        self._parameters = parameters
        self._clip_norm = manifest.inner.clip_norm
        unflatten(anchor, parameters)
        numel = sum(parameter.numel() for parameter in parameters)
        self._sum = torch.zeros(numel, device=parameters[0].device)
        self._tokens = 0
        self._sent: tuple[Tensor, int] | None = None  # the sum, on the CPU, and its tokens

    def inner_step(self, tokens: int, learning_rate: float) -> None:
        """See `Strategy`. The learning rate is the outer optimizer's."""
        del learning_rate
        clip_gradients(self._parameters, self._clip_norm)
        sums = torch.split(self._sum, [parameter.numel() for parameter in self._parameters])
        for parameter, total in zip(self._parameters, sums, strict=True):
            if parameter.grad is not None:
                total.add_(parameter.grad.reshape(-1), alpha=tokens)
        self._tokens += tokens

    def mark(self) -> None:
        self._sent = self._sum.to("cpu", copy=True), self._tokens

    def contribute(self) -> Tensor:
        assert self._sent is not None
        total, tokens = self._sent
        return total / tokens

    def accept(self, anchor: Tensor) -> None:
        assert self._sent is not None
        total, tokens = self._sent
        for part, sent in pieces([self._sum], total):
            part -= on(part.device, sent)
        self._tokens -= tokens
        self.rebase(anchor)

    def rebase(self, anchor: Tensor) -> None:
        """See `Strategy`. Gradients from the old anchor are kept as they are: stale by one round."""
        unflatten(anchor, self._parameters)
        self._sent = None

    def discard(self) -> None:
        self._sum.zero_()
        self._tokens = 0
        self._sent = None

    def bring_back(self, anchor: Tensor, origin: Tensor, part: float) -> None:
        """See `Strategy`. What steps of an optimizer have done is no gradient: it is given up."""
        del origin, part
        self.rebase(anchor)

    def move_to(self, device: torch.device) -> None:
        move_to(device, self._parameters)
        self._sum = self._sum.to(device)

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self._sum, "tokens": self._tokens}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sum.copy_(state["sum"])
        self._tokens = state["tokens"]
