"""The GPT decoder: h_0 = U·W_e + W_p, transformer blocks, P(u) = softmax(h_n·W_eᵀ).

With learned positions, layer norm and GELU it is GPT-1 (Radford et al. 2018, "Improving Language
Understanding by Generative Pre-Training", sections 3.1 and 4.1) where norms stand after the residual sums,
and GPT-2 (Radford et al. 2019, section 2.3) where they stand before. The presets name other models, and
their sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.learning.transformer.attention import Cache, LayerCache
from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy
from dupt_swarm.learning.transformer.transformer import Writing, stack
from dupt_swarm.manifest import Model


class GPT(Writing):
    """A decoder of the manifest's shape, its weights drawn with seed 0 (`init_weights` draws others)."""

    def __init__(self, config: Model) -> None:
        super().__init__(config)
        self.h, self.ln_f = stack(config, config.layers)
        self.complete()

    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The mean loss of ``targets``, or without them the logits.

        Args:
            inputs: int64 [B, T], T at most context_length.
            targets: int64 [B, T], the token that follows each input.

        Returns:
            −L1 ÷ (B·T), the mean negative log likelihood in nats, an fp32 scalar; or logits [B, T, V].

        Raises:
            UsageError: the inputs are longer than the context.
        """
        x = self.hidden(inputs)
        if targets is None:
            return F.linear(x, self.output_weight)
        return linear_cross_entropy(x.flatten(0, 1), self.output_weight, targets.flatten())

    def hidden(self, inputs: Tensor, cache: Cache | None = None) -> Tensor:
        """h_n, what the last block gives, normalised.

        Args:
            inputs: int64 [B, T].
            cache: what the model has read already, on which the inputs follow; they are in it afterwards.

        Returns:
            [B, T, C].

        Raises:
            UsageError: the inputs, with those in the cache, are longer than the context.
        """
        x, turn = self.embed(inputs, 0 if cache is None else cache.length, "the last ones only")
        x = self.drop(x)
        layers: Sequence[LayerCache | None] = [None] * len(self.h) if cache is None else cache.layers
        for block, layer in zip(self.h, layers, strict=True):
            x = block(x, turn, layer)
        return self.ln_f(x)  # type: ignore[no-any-return]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """h_n of sequences with padding after them, which no token sees: int64 [B, T], [B] to [B, T, C]."""
        del lengths
        return self.hidden(tokens)

    def summary(self, h: Tensor, lengths: Tensor) -> Tensor:
        """What a sequence is as a whole, h_l^m of its last token: [B, T, C], int64 [B] to [B, C]."""
        last = (lengths - 1).clamp(min=0)
        return h[torch.arange(len(h), device=h.device), last]
