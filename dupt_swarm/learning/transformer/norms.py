"""Normalisation of each position's features."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.manifest import Model


def layer_norm(width: int, config: Model) -> nn.Module:
    """(x − mean) ÷ √(variance + ε) · gain + bias (Ba et al. 2016, arXiv:1607.06450)."""
    return nn.LayerNorm(width, config.norm_epsilon, bias=config.biases)


class RMSNorm(nn.RMSNorm):
    """x ÷ √(mean of x² + ε) · gain (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, width: int, config: Model) -> None:
        super().__init__(width, config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """[…, width] in the precision of the gain; autocast sees to that for layer norm, not for this."""
        return F.rms_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps)


NORMS: dict[str, Callable[[int, Model], nn.Module]] = {"layer": layer_norm, "rms": RMSNorm}


def build_norm(width: int, config: Model) -> nn.Module:
    """The norm that ``config`` names, over the last ``width`` values."""
    return NORMS[config.norm](width, config)
