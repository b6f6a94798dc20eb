"""Strategies: what an oracle does in its inner steps, and what it contributes at the end of a round.

All of them work on one flat fp32 vector in the order of the parameters, and none knows of a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from dupt_swarm.learning.strategies.diloco import DiLoCo
from dupt_swarm.learning.strategies.gradient import Gradient
from dupt_swarm.manifest import Manifest


class Strategy(Protocol):
    """One oracle's side of the training algorithm."""

    def inner_step(self, tokens: int, learning_rate: float) -> None:
        """Use the gradients that the parameters have now, the mean over ``tokens``.

        ``learning_rate`` is that of the inner optimizer, if there is one.
        """

    def contribute(self, out: Tensor) -> None:
        """Write the contribution to ``out`` (fp32 on the CPU, ``[numel]``), and remember what was sent."""

    def accept(self, anchor: Tensor) -> None:
        """The round succeeded with what was sent: go on from ``anchor``, keeping what came after."""

    def rebase(self, anchor: Tensor) -> None:
        """The swarm moved to ``anchor`` without our contribution: go on from there, keeping all of it."""

    def discard(self) -> None:
        """Give up all progress since the anchor: it is not finite."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed, beside the anchor, to go on as if never stopped."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, with the anchor that it was saved with."""


STRATEGIES: dict[str, type[DiLoCo] | type[Gradient]] = {"diloco": DiLoCo, "gradient": Gradient}


def build_strategy(parameters: Sequence[nn.Parameter], manifest: Manifest, anchor: Tensor) -> Strategy:
    """The strategy that the manifest names; the parameters are set to ``anchor``."""
    return STRATEGIES[manifest.rounds.strategy](parameters, manifest, anchor)
