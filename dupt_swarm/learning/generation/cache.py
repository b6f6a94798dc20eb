"""The key-value cache: what a decoder has read, so that each token is computed once.

Shapes: B sequences, T new tokens after the P that are cached, D = width ÷ heads.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.learning.decoder.attention import shared
from dupt_swarm.manifest import Model


class Cache:
    """Room for the keys and values of a whole context, in all layers. Without gradients.

    Attributes:
        layers: the cache of each block, in their order.
    """

    def __init__(self, config: Model, sequences: int, device: torch.device) -> None:
        """Empty; fp32. It takes 8 × layers × context_length × kv_heads × D bytes for each sequence."""
        shape = (sequences, config.key_value_heads, config.context_length, config.head_width)
        room = torch.empty(config.layers, 2, *shape, device=device)
        self.layers = [LayerCache(layer[0], layer[1]) for layer in room.unbind()]

    @property
    def length(self) -> int:
        """P, the number of tokens that the model has read."""
        return self.layers[0].length

    def clear(self) -> None:
        """Forget them all."""
        for layer in self.layers:
            layer.length = 0


class LayerCache:
    """Keys and values of one block."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        """Room for them, [B, kv_heads, context_length, D] each."""
        self._keys, self._values = keys, values
        self.length = 0

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of new tokens to those in the cache and to one another; then they are in it too.

        Args:
            q: [B, heads, T, D].
            k, v: [B, kv_heads, T, D] each.

        Returns:
            [B, heads, T, D].
        """
        start, self.length = self.length, self.length + q.size(2)
        self._keys[:, :, start : self.length] = k
        self._values[:, :, start : self.length] = v
        if start == 0:
            return F.scaled_dot_product_attention(q, *shared(q, k, v), is_causal=True)
        k, v = shared(q, self._keys[:, :, : self.length], self._values[:, :, : self.length])
        if q.size(2) == 1:
            return F.scaled_dot_product_attention(q, k, v)
        seen = torch.ones(q.size(2), self.length, dtype=torch.bool, device=q.device).tril(start)
        return F.scaled_dot_product_attention(q, k, v, seen)
