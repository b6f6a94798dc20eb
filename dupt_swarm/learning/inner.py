"""The inner optimizer: plain PyTorch, local to each oracle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Inner


def build_inner(model_parameters: Iterable[nn.Parameter], inner: Inner) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019) or SGD without momentum, with the peak learning rate.

    Matrices and embeddings decay, biases and gains do not (GPT-1, section 4.1). The caller sets
    ``group["lr"]`` of both groups before each update.

    Raises:
        UsageError: the manifest has no inner optimizer.
    """
    parameters = [parameter for parameter in model_parameters if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": inner.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    # One pass over memory instead of a dozen; None lets PyTorch choose where it has no fused kernel.
    fused = True if all(p.device.type in ("cpu", "cuda") for p in parameters) else None
    if inner.optimizer == "adamw":
        betas = (inner.beta1, inner.beta2)
        return torch.optim.AdamW(groups, lr=inner.learning_rate, betas=betas, eps=inner.epsilon, fused=fused)
    if inner.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=inner.learning_rate, fused=fused)
    raise UsageError('inner.optimizer is "none"; only strategy `diloco` has inner steps with an optimizer')
