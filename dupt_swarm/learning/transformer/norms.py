"""Normalisation of each position's features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.manifest import Model


class LayerNorm(nn.LayerNorm):
    """(x − mean) ÷ √(variance + ε) · gain + bias (Ba et al. 2016, arXiv:1607.06450)."""

    def __init__(self, width: int, config: Model) -> None:
        super().__init__(width, config.norm_epsilon, bias=config.biases)

    def forward(self, x: Tensor) -> Tensor:
        """[…, width]; see `narrowed`."""
        return narrowed(super().forward(x))


class RMSNorm(nn.RMSNorm):
    """x ÷ √(mean of x² + ε) · gain (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, width: int, config: Model) -> None:
        super().__init__(width, config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """[…, width], in the gain's precision, for which autocast does not see here; see `narrowed`."""
        return narrowed(F.rms_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps))


def narrowed(x: Tensor) -> Tensor:
    """On a GPU, values in the precision of products, into which they go: half the bytes to move."""
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        return x.to(torch.get_autocast_dtype("cuda"))
    return x


NORMS: dict[str, Callable[[int, Model], nn.Module]] = {"layer": LayerNorm, "rms": RMSNorm}


def build_norm(width: int, config: Model) -> nn.Module:
    """The norm that ``config`` names, over the last ``width`` values."""
    return NORMS[config.norm](width, config)
