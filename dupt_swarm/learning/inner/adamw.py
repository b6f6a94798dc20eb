"""AdamW (Loshchilov and Hutter 2019), and stochastic gradient descent without momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn, optim

from dupt_swarm.manifest import Inner


def build_adamw(parameters: Sequence[nn.Parameter], inner: Inner) -> optim.AdamW:
    """AdamW, with weight decay on matrices."""
    return optim.AdamW(
        _decay_groups(parameters, inner.weight_decay),
        lr=inner.learning_rate,
        betas=(inner.beta1, inner.beta2),
        eps=inner.epsilon,
        fused=_fused(parameters),
    )


def build_sgd(parameters: Sequence[nn.Parameter], inner: Inner) -> optim.SGD:
    """SGD, with weight decay on matrices."""
    groups = _decay_groups(parameters, inner.weight_decay)
    return optim.SGD(groups, lr=inner.learning_rate, fused=_fused(parameters))


def _decay_groups(parameters: Sequence[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices and embeddings, which decay, and biases and gains, which do not."""
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _fused(parameters: Sequence[nn.Parameter]) -> bool | None:
    """Whether to update in one pass over memory; None, where there is no such kernel: as PyTorch likes."""
    return True if all(p.device.type in ("cpu", "cuda") for p in parameters) else None
