"""The position-wise feed-forward layer."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.transformer.dropout import Dropout
from dupt_swarm.manifest import Model

BY_SIGMOID_ON = {"cuda"}  # kinds of devices


class MLP(nn.Module):
    """activation(x·W_1)·W_2: with ReLU that of Vaswani et al. 2017, section 3.3; with GELU GPT-1's."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.feed_forward]
        self.c_fc = nn.Linear(config.width, config.hidden_width, bias=config.biases)
        self.c_proj = nn.Linear(config.hidden_width, config.width, bias=config.biases)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        return self.dropout(self.c_proj(self.activation(self.c_fc(x))))  # type: ignore[no-any-return]


class SwiGLU(nn.Module):
    """(SiLU(x·W) ⊙ x·V)·W_2 (Shazeer 2020, arXiv:2002.05202, equation 6)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.c_gate = nn.Linear(config.width, config.hidden_width, bias=config.biases)
        self.c_fc = nn.Linear(config.width, config.hidden_width, bias=config.biases)
        self.c_proj = nn.Linear(config.hidden_width, config.width, bias=config.biases)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        gated = F.silu(self.c_gate(x)) * self.c_fc(x)
        return self.dropout(self.c_proj(gated))  # type: ignore[no-any-return]


def gelu(x: Tensor) -> Tensor:
    """GELU's tanh form (Hendrycks and Gimpel 2016, section 2), as in the code that was published with GPT-1.

    (1 + tanh y) ÷ 2 is σ(2y), for which the compiler needs 21 instructions on an H100, and not 35.
    """
    if torch.compiler.is_compiling() and x.device.type in BY_SIGMOID_ON:
        return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": gelu,
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "swiglu": F.silu,
}
FEED_FORWARDS: dict[str, Callable[[Model], nn.Module]] = {
    **dict.fromkeys(("gelu", "gelu_erf", "relu"), MLP),
    "swiglu": SwiGLU,
}
