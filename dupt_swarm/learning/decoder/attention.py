"""Causal self-attention (Vaswani et al. 2017, section 3.2), and the cache of keys and values.

Query heads may share keys and values. Shapes: B sequences, T new tokens after the P that are cached,
D = width ÷ heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.decoder.norms import build_norm
from dupt_swarm.learning.decoder.positions import Turn
from dupt_swarm.manifest import Model


class Attention(nn.Module):
    """Each head of keys and values serves heads ÷ kv_heads heads of queries.

    As many: multi-head. One: multi-query (Shazeer 2019, arXiv:1911.02150). Between: grouped-query (Ainslie
    et al. 2023, arXiv:2305.13245). With ``qk_norm`` each head's queries and keys are normalised before they
    are turned (Henry et al. 2020, arXiv:2010.04245, with gains as in Dehghani et al. 2023, arXiv:2302.05442).
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.head_width, self.dropout = config.head_width, config.dropout
        kv_width = config.key_value_heads * config.head_width
        self.widths = (config.width, kv_width, kv_width)
        self.c_attn = nn.Linear(config.width, sum(self.widths), bias=config.biases)  # query, key, value
        self.c_proj = nn.Linear(config.width, config.width, bias=config.biases)
        self.q_norm = build_norm(config.head_width, config) if config.qk_norm else nn.Identity()
        self.k_norm = build_norm(config.head_width, config) if config.qk_norm else nn.Identity()
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, turn: Turn, cache: LayerCache | None = None) -> Tensor:
        """[B, T, C] to [B, T, C]; position t sees positions ≤ t, and all those in the cache."""
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, -1, self.head_width).transpose(1, 2)
            for part in self.c_attn(x).split(self.widths, dim=2)
        )
        q, k = turn(self.q_norm(q)).to(v.dtype), turn(self.k_norm(k)).to(v.dtype)
        if cache is None:
            y = causal_attention(q, k, v, self.dropout if self.training else 0.0)
        else:
            y = cache.attend(q, k, v)
        y = self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return self.resid_dropout(y)  # type: ignore[no-any-return]


def shared(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values for every query head: [B, kv_heads, T, D] to [B, heads, T, D]."""
    queries = q.size(1) // k.size(1)
    if queries == 1:
        return k, v
    return k.repeat_interleave(queries, dim=1), v.repeat_interleave(queries, dim=1)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """softmax(q·kᵀ ÷ √D + causal mask)·v, with dropout on the probabilities.

    Args:
        q: [B, heads, T, D].
        k, v: [B, kv_heads, T, D] each.
        dropout: of the probabilities.
    """
    T, D = q.shape[-2:]
    if q.device.type == "cuda" and q.dtype == torch.bfloat16 and k.size(1) < q.size(1):
        # Its flash kernel reads keys and values of fewer heads where they are; cards without bf16 have none.
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=True)
    k, v = shared(q, k, v)
    if q.device.type != "cpu" or q.dtype != torch.bfloat16 or T > 512:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    # The same in plain products: on CPUs in bf16 that takes half the time of PyTorch's fused kernel.
    future = torch.full((T, T), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    with torch.autocast("cpu", enabled=False):  # it would make fp32 copies; softmax sums in fp32 anyway
        probabilities = torch.softmax(((q * D**-0.5) @ k.transpose(-1, -2)).add_(future), dim=-1)
        return F.dropout(probabilities, dropout) @ v


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
