"""A transformer block: attention and feed-forward layer with residual sums, and where the norms stand.

A decoder's block may look at what an encoder has read, between its two layers.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from dupt_swarm.learning.transformer.attention import Attention, CrossAttention, LayerCache, Memory
from dupt_swarm.learning.transformer.feed_forward import FEED_FORWARDS
from dupt_swarm.learning.transformer.norms import build_norm
from dupt_swarm.learning.transformer.positions import Turn
from dupt_swarm.manifest import Model


class Block(nn.Module):
    """Attention and feed-forward layer, each with a norm of its own.

    Attributes:
        normalised: whether what a block of this class gives has gone through a norm.
    """

    normalised: ClassVar[bool]

    def __init__(self, config: Model, *, causal: bool = True, crossing: bool = False) -> None:
        """Of a decoder, or of an encoder if it is not ``causal``; ``crossing``: it looks at one, too."""
        super().__init__()
        self.ln_1 = build_norm(config.width, config)
        self.attn = Attention(config, causal=causal)
        if crossing:
            self.ln_cross = build_norm(config.width, config)
            self.cross = CrossAttention(config)
        self.ln_2 = build_norm(config.width, config)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)


class PostNorm(Block):
    """norm(x + f(x)), as in the 2017 Transformer and GPT-1."""

    normalised = True

    def forward(
        self,
        x: Tensor,
        turn: Turn,
        cache: LayerCache | None = None,
        seen: Tensor | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """[B, T, C] to [B, T, C]; for ``seen`` see `Attention`; at ``memory`` a crossing block looks."""
        x = self.ln_1(x + self.attn(x, turn, cache, seen))
        if memory is not None:
            x = self.ln_cross(x + self.cross(x, memory))
        return self.ln_2(x + self.mlp(x))  # type: ignore[no-any-return]


class PreNorm(Block):
    """x + f(norm(x)), as in GPT-2 and LLaMA."""

    normalised = False

    def forward(
        self,
        x: Tensor,
        turn: Turn,
        cache: LayerCache | None = None,
        seen: Tensor | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """See `PostNorm.forward`."""
        x = x + self.attn(self.ln_1(x), turn, cache, seen)
        if memory is not None:
            x = x + self.cross(self.ln_cross(x), memory)
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Parallel(nn.Module):
    """x + attention(norm(x)) + feed_forward(norm(x)), of one norm (PaLM, arXiv:2204.02311, section 2)."""

    normalised: ClassVar[bool] = False

    def __init__(self, config: Model, *, causal: bool = True) -> None:
        """A block of a decoder, or of an encoder if it is not ``causal``."""
        super().__init__()
        self.ln_1 = build_norm(config.width, config)
        self.attn = Attention(config, causal=causal)
        self.mlp = FEED_FORWARDS[config.feed_forward](config)

    def forward(
        self, x: Tensor, turn: Turn, cache: LayerCache | None = None, seen: Tensor | None = None
    ) -> Tensor:
        """See `PostNorm.forward`."""
        y = self.ln_1(x)
        return x + self.attn(y, turn, cache, seen) + self.mlp(y)  # type: ignore[no-any-return]


BLOCKS: dict[str, type[Block | Parallel]] = {"post": PostNorm, "pre": PreNorm, "parallel": Parallel}
