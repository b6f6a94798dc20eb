"""The Transformer of 2017 (Vaswani et al., arXiv:1706.03762): a text is written by looking at another one.

An encoder reads the source in both directions; the decoder predicts the next token of the target from those
before it, and in each block from what the encoder has read. Source, target and, if it is tied, the output
share one W_e (section 3.4). Shapes: B pairs, S tokens of a source, T of a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from dupt_swarm.learning.transformer.attention import Cache, LayerCache, Memory
from dupt_swarm.learning.transformer.block import Block
from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy
from dupt_swarm.learning.transformer.positions import Turn
from dupt_swarm.learning.transformer.transformer import Writing, stack
from dupt_swarm.manifest import Model


class Encoder(nn.Module):
    """The blocks that read the source; embeddings are shared with the decoder."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.h, self.ln_f = stack(config, config.encoder_layers, causal=False)

    def forward(self, x: Tensor, turn: Turn, seen: Tensor | None) -> Tensor:
        """[B, S, C] to [B, S, C]; for ``seen`` see `Memory`."""
        for block in self.h:
            x = block(x, turn, seen=seen)
        return self.ln_f(x)  # type: ignore[no-any-return]


class EncoderDecoder(Writing):
    """A model of the manifest's shape, its weights drawn with seed 0 (`init_weights` draws others)."""

    def __init__(self, config: Model, smoothing: float = 0.0) -> None:
        """``smoothing``: ε of the loss, see `linear_cross_entropy` (section 5.4)."""
        super().__init__(config)
        self.smoothing = smoothing
        self.encoder = Encoder(config)
        self.h, self.ln_f = stack(config, config.layers, crossing=True)
        self.complete()

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        inputs: Tensor,
        targets: Tensor,
        lengths: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """The mean over pairs of weight · mean smoothed loss of the pair's target tokens.

        Args:
            source: int64 [B, S].
            source_lengths: int64 [B], tokens that are no padding, at least 1.
            inputs: int64 [B, T], what begins a target, then the target.
            targets: int64 [B, T], the token that follows each input.
            lengths: int64 [B], inputs that are no padding, at least 1.
            weights: fp32 [B], what each pair counts for. In proportion to ``lengths``, the loss is that of
                all target tokens together, divided by so many as a batch has in the mean.

        Returns:
            An fp32 scalar, nats.

        Raises:
            UsageError: a text is longer than the context.
        """
        h = self.hidden(inputs, self.encode(source, source_lengths))
        real = real_positions(inputs, lengths)
        share = (weights / (len(lengths) * lengths)).unsqueeze(1).expand_as(real)
        return linear_cross_entropy(
            h[real], self.output_weight, targets[real], share[real], smoothing=self.smoothing
        )

    def encode(self, source: Tensor, lengths: Tensor | None = None) -> list[Memory]:
        """What each block of the decoder looks at.

        Args:
            source: int64 [B, S].
            lengths: int64 [B], tokens that are no padding, at least 1; None: all.

        Raises:
            UsageError: the source is longer than the context.
        """
        x, turn = self.embed(source)
        seen = None if lengths is None else real_positions(source, lengths)[:, None, None]
        encoded = self.encoder(self.drop(x), turn, seen)
        return [cast(Block, block).cross.remember(encoded, seen) for block in self.h]

    def hidden(self, target: Tensor, memories: Sequence[Memory], cache: Cache | None = None) -> Tensor:
        """h_n, what the decoder's last block gives, normalised.

        Args:
            target: int64 [B, T]; padding comes last.
            memories: of `encode`.
            cache: what the decoder has read already, on which ``target`` follows; it is in it afterwards.

        Returns:
            [B, T, C].

        Raises:
            UsageError: the target, with what is in the cache, is longer than the context.
        """
        x, turn = self.embed(target, 0 if cache is None else cache.length)
        x = self.drop(x)
        layers: Sequence[LayerCache | None] = [None] * len(self.h) if cache is None else cache.layers
        for block, layer, memory in zip(self.h, layers, memories, strict=True):
            x = block(x, turn, layer, memory=memory)
        return self.ln_f(x)  # type: ignore[no-any-return]


def real_positions(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Which of [B, T] are no padding, where the first ``lengths``, int64 [B], are none; bool [B, T]."""
    return torch.arange(tokens.size(1), device=tokens.device) < lengths.unsqueeze(1)
