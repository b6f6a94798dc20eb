"""How the decoder knows a token's position: something added to its embedding, or queries and keys turned.

Each kind does both: `add` returns h_0 from the embeddings, `turn` what attention does to queries and keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from dupt_swarm.manifest import Model

Turn = Callable[[Tensor], Tensor]
"""What becomes of queries or keys, [B, heads, T, D], by their positions."""


class Positions(Protocol):
    """A kind of positions."""

    def add(self, x: Tensor, start: int) -> Tensor:
        """h_0 of embeddings [B, T, C] at the positions from ``start`` on."""

    def turn(self, start: int, end: int) -> Turn:
        """For queries and keys at the positions from ``start`` to ``end``."""


def unturned(x: Tensor) -> Tensor:
    """Where positions are in the embeddings, queries and keys stay as they are."""
    return x


class Learned(nn.Embedding):
    """`Positions` with h_0 = U·W_e + W_p (Radford et al. 2018, section 3.1); the weight is W_p."""

    def __init__(self, config: Model) -> None:
        super().__init__(config.context_length, config.width)

    def add(self, x: Tensor, start: int) -> Tensor:
        return x + self.weight[start : start + x.size(1)]

    def turn(self, _start: int, _end: int) -> Turn:
        return unturned


class Sinusoidal(nn.Module):
    """`Positions` with h_0 = √C·U·W_e + PE, sines and cosines (Vaswani et al. 2017, sections 3.4 and 3.5)."""

    table: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        angles = _angles(config.context_length, config.width, 10_000.0)
        table = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # sin, cos, sin, cos, …
        self.register_buffer("table", table, persistent=False)
        self.scale = math.sqrt(config.width)

    def add(self, x: Tensor, start: int) -> Tensor:
        return x * self.scale + self.table[start : start + x.size(1)]

    def turn(self, _start: int, _end: int) -> Turn:
        return unturned


class Rotary(nn.Module):
    """`Positions` by which queries and keys are turned, by growing angles (Su et al. 2021, arXiv:2104.09864).

    Feature i makes a pair with feature i + D ÷ 2, as in the published weights of LLaMA in Hugging Face's
    format; the paper's pairs are neighbours, which is the same but for the order of the features.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        angles = _angles(config.context_length, config.head_width, config.rotary_base).repeat(1, 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def add(self, x: Tensor, _start: int) -> Tensor:
        return x

    def turn(self, start: int, end: int) -> Turn:
        cosines, sines = self.cosines[start:end], self.sines[start:end]

        def turned(x: Tensor) -> Tensor:
            first, second = x.chunk(2, dim=-1)
            other = torch.cat((-second, first), dim=-1)
            return x * cosines + other * sines  # fp32, also under autocast

        return turned


def _angles(positions: int, features: int, base: float) -> Tensor:
    """fp32 [positions, features ÷ 2]: position · base^(−2i ÷ features), exact to fp32's rounding."""
    powers = torch.arange(0, features, 2, dtype=torch.float32) / features
    return torch.outer(torch.arange(positions, dtype=torch.float32), 1.0 / base**powers)


POSITIONS: dict[str, Callable[[Model], nn.Module]] = {
    "learned": Learned,
    "sinusoidal": Sinusoidal,
    "rotary": Rotary,
}
