"""Stochastic gradient descent without momentum."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn, optim

from dupt_swarm.learning.inner.adamw import decay_groups, fused
from dupt_swarm.manifest import Inner


def build_sgd(parameters: Sequence[nn.Parameter], inner: Inner) -> optim.SGD:
    """SGD, with weight decay on matrices."""
    groups = decay_groups(parameters, inner.weight_decay)
    return optim.SGD(groups, lr=inner.learning_rate, fused=fused(parameters))
