"""Strategies: what an oracle does in its inner steps, and what it contributes at the end of a round.

All work on one flat fp32 vector in the order of the parameters; none knows about the network.

diloco          many optimizer steps; contributes anchor − parameters
gradient        no optimizer; contributes the mean gradient
flat            parameters to one vector and back, gradient clipping
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.learning.strategies.diloco import DiLoCo
from dupt_swarm.learning.strategies.gradient import Gradient
from dupt_swarm.manifest import Manifest


class Strategy(Protocol):
    """One oracle's side of the training algorithm."""

    def inner_step(self, tokens: int, learning_rate: float) -> None:
        """Use the gradients that the parameters have now, the mean over ``tokens``.

        ``learning_rate`` is that of the inner optimizer, if there is one.
        """

    def mark(self) -> None:
        """Remember the progress so far: `contribute` gives it, whatever is done meanwhile."""

    def contribute(self) -> Tensor:
        """The contribution up to the mark: new memory, fp32 ``[numel]``, on the CPU.

        May be called in another thread while inner steps go on: it leaves the device alone.
        """

    def accept(self, anchor: Tensor) -> None:
        """The round included what was sent: continue from ``anchor``, keeping progress made since."""

    def rebase(self, anchor: Tensor) -> None:
        """The swarm moved to ``anchor`` without our contribution: continue there, keeping all progress."""

    def bring_back(self, anchor: Tensor, origin: Tensor, part: float) -> None:
        """The same, where the anchor so far is of a branch that is given up.

        Of what that branch has learnt since its anchor ``origin``, this ``part`` counts as our own progress
        from now on, if the strategy can bring it to the other branch.
        """

    def discard(self) -> None:
        """Drop all progress since the anchor: it is not finite."""

    def move_to(self, device: torch.device) -> None:
        """Move the parameters, and what the strategy keeps of their size; gradients are forgotten."""

    def state_dict(self) -> dict[str, Any]:
        """What is needed, besides the anchor, to resume as if never stopped."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``, with the anchor that it was saved with."""


STRATEGIES: dict[str, type[DiLoCo] | type[Gradient]] = {"diloco": DiLoCo, "gradient": Gradient}


def build_strategy(
    parameters: Sequence[nn.Parameter],
    manifest: Manifest,
    anchor: Tensor,
    matrices: Iterable[nn.Parameter] | None = None,
    unigrams: Unigrams | None = None,
    *,
    offload: bool = False,
) -> Strategy:
    """The strategy that the manifest names; the parameters are set to ``anchor`` (``[numel]``).

    An anchor that a strategy is given must stay as it is until it is given another.

    ``matrices``, ``unigrams``: see `learning.inner.build_inner`; ``offload``: see `Offloaded`.
    """
    strategy = STRATEGIES[manifest.rounds.strategy]
    return strategy(parameters, manifest, anchor, matrices=matrices, unigrams=unigrams, offload=offload)
