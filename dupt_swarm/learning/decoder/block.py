"""A transformer block: attention and feed-forward layer with residual sums, and where the norms stand."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from dupt_swarm.learning.decoder.attention import Attention, LayerCache
from dupt_swarm.learning.decoder.feed_forward import FEED_FORWARDS
from dupt_swarm.learning.decoder.norms import build_norm
from dupt_swarm.learning.decoder.positions import Turn
from dupt_swarm.manifest import Model


class Block(nn.Module):
    """Attention and feed-forward layer, each with a norm of its own.

    Attributes:
        normalised: whether what a block of this class gives has gone through a norm.
    """

    normalised: ClassVar[bool]

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.ln_1 = build_norm(config.width, config)
        self.attn = Attention(config)
        self.ln_2 = build_norm(config.width, config)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)


class PostNorm(Block):
    """norm(x + f(x)), as in the 2017 Transformer and GPT-1."""

    normalised = True

    def forward(self, x: Tensor, turn: Turn, cache: LayerCache | None = None) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        x = self.ln_1(x + self.attn(x, turn, cache))
        return self.ln_2(x + self.mlp(x))  # type: ignore[no-any-return]


class PreNorm(Block):
    """x + f(norm(x)), as in GPT-2 and LLaMA."""

    normalised = False

    def forward(self, x: Tensor, turn: Turn, cache: LayerCache | None = None) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        x = x + self.attn(self.ln_1(x), turn, cache)
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Parallel(nn.Module):
    """x + attention(norm(x)) + feed_forward(norm(x)), of one norm (PaLM, arXiv:2204.02311, section 2)."""

    normalised: ClassVar[bool] = False

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.ln_1 = build_norm(config.width, config)
        self.attn = Attention(config)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)

    def forward(self, x: Tensor, turn: Turn, cache: LayerCache | None = None) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        y = self.ln_1(x)
        return x + self.attn(y, turn, cache) + self.mlp(y)  # type: ignore[no-any-return]


BLOCKS: dict[str, type[Block | Parallel]] = {"post": PostNorm, "pre": PreNorm, "parallel": Parallel}
