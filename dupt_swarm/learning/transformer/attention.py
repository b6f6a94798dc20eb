"""Attention (Vaswani et al. 2017, section 3.2), and the cache of keys and values.

Of a text to itself, causal in a decoder and in both directions in an encoder, or of a decoder to what an
encoder has read. Query heads may share keys and values. Shapes: B sequences, T new tokens after the P that
are cached, S tokens that are looked at, D = width ÷ heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.transformer.dropout import Dropout
from dupt_swarm.learning.transformer.norms import build_norm
from dupt_swarm.learning.transformer.positions import Turn
from dupt_swarm.manifest import Model

PLAIN_TOKENS = 512  # at most: what probabilities take grows with the square


class Heads(nn.Module):
    """The weights of attention: each head of keys and values serves heads ÷ kv_heads heads of queries.

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
        self.resid_dropout = Dropout(config.dropout)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, heads · D] to [B, heads, T, D]."""
        return x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2)

    def join(self, y: Tensor) -> Tensor:
        """What all heads found, [B, heads, T, D], to [B, T, C]."""
        y = y.transpose(1, 2).reshape(y.size(0), y.size(2), -1)
        return self.resid_dropout(self.c_proj(y))  # type: ignore[no-any-return]

    @property
    def dropped(self) -> float:
        """The dropout on probabilities, now."""
        return self.dropout if self.training else 0.0


class Attention(Heads):
    """Of a text to itself."""

    def __init__(self, config: Model, *, causal: bool) -> None:
        """``causal``: position t sees positions ≤ t alone."""
        super().__init__(config)
        self.causal = causal

    def forward(
        self, x: Tensor, turn: Turn, cache: LayerCache | None = None, seen: Tensor | None = None
    ) -> Tensor:
        """[B, T, C] to [B, T, C].

        Args:
            x: the text.
            turn: what positions do to queries and keys.
            cache: what was read before, which all of it sees; causal attention only.
            seen: bool [B, 1, 1, T], which positions are seen at all; None: all. Not with causal attention,
                where padding comes last.
        """
        q, k, v = map(self.split, self.c_attn(x).split(self.widths, dim=2))
        q, k = turn(self.q_norm(q)).to(v.dtype), turn(self.k_norm(k)).to(v.dtype)
        if cache is None:
            return self.join(attend(q, k, v, self.dropped, causal=self.causal, seen=seen))
        return self.join(cache.attend(q, k, v))


class Memory(NamedTuple):
    """What an encoder has read, as a block of the decoder looks at it.

    Attributes:
        keys, values: [B, kv_heads, S, D] each.
        seen: bool [B, 1, 1, S], which positions are no padding; None: all.
    """

    keys: Tensor
    values: Tensor
    seen: Tensor | None

    def of(self, rows: Tensor) -> Memory:
        """That of some sequences, int64 [N], in their order."""
        seen = None if self.seen is None else self.seen[rows]
        return Memory(self.keys[rows], self.values[rows], seen)


class CrossAttention(Heads):
    """Of a decoder to what an encoder has read (section 3.2.3): queries of one, keys, values of another."""

    def remember(self, encoded: Tensor, seen: Tensor | None) -> Memory:
        """Keys and values of [B, S, C]; ``seen`` as in `Memory`."""
        keys, values = map(self.split, self._project(encoded, slice(self.widths[0], None)).chunk(2, dim=2))
        return Memory(self.k_norm(keys).to(values.dtype), values, seen)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """[B, T, C] to [B, T, C]; each position looks at all of ``memory``."""
        q = self.q_norm(self.split(self._project(x, slice(0, self.widths[0]))))
        return self.join(
            attend(q.to(memory.values.dtype), memory.keys, memory.values, self.dropped, seen=memory.seen)
        )

    def _project(self, x: Tensor, rows: slice) -> Tensor:
        bias = self.c_attn.bias
        return F.linear(x, self.c_attn.weight[rows], None if bias is None else bias[rows])


def shared(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values for every query head: [B, kv_heads, T, D] to [B, heads, T, D]."""
    queries = q.size(1) // k.size(1)
    if queries == 1:
        return k, v
    return k.repeat_interleave(queries, dim=1), v.repeat_interleave(queries, dim=1)


def attend(
    q: Tensor, k: Tensor, v: Tensor, dropout: float, *, causal: bool = False, seen: Tensor | None = None
) -> Tensor:
    """softmax(q·kᵀ ÷ √D + mask)·v, with dropout on the probabilities.

    Args:
        q: [B, heads, T, D].
        k, v: [B, kv_heads, S, D] each.
        dropout: of the probabilities.
        causal: position t sees positions ≤ t.
        seen: bool [B, 1, 1, S], which positions are seen; None: all.
    """
    T, S, D = q.size(-2), k.size(-2), q.size(-1)
    if q.device.type == "cuda" and q.dtype == torch.bfloat16 and k.size(1) < q.size(1) and seen is None:
        # Its flash kernel reads keys and values of fewer heads where they are; cards without bf16 have none.
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal, enable_gqa=True)
    k, v = shared(q, k, v)
    if q.device.type != "cpu" or q.dtype != torch.bfloat16 or T > PLAIN_TOKENS:
        return F.scaled_dot_product_attention(q, k, v, seen, dropout_p=dropout, is_causal=causal)
    # The same in plain products: on CPUs in bf16 that takes half the time of PyTorch's fused kernel.
    with torch.autocast("cpu", enabled=False):  # it would make fp32 copies; softmax sums in fp32 anyway
        scores = (q * D**-0.5) @ k.transpose(-1, -2)
        if causal:
            scores = scores.add_(torch.full((T, S), -torch.inf, dtype=q.dtype, device=q.device).triu(1))
        if seen is not None:
            scores = scores.masked_fill_(~seen, -torch.inf)
        return F.dropout(torch.softmax(scores, dim=-1), dropout) @ v


class Cache:
    """Room for the keys and values of a context, in all layers. Without gradients.

    Attributes:
        layers: the cache of each block, in their order.
    """

    def __init__(
        self, config: Model, sequences: int, device: torch.device, tokens: int | None = None
    ) -> None:
        """Empty; fp32. It takes 8 × layers × tokens × kv_heads × D bytes for each sequence.

        ``tokens``: how many at most; None: a whole context.
        """
        shape = (sequences, config.key_value_heads, tokens or config.context_length, config.head_width)
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

    def reorder(self, rows: Tensor) -> None:
        """Each sequence goes on as a copy of another: ``rows`` are of which, int64 [sequences]."""
        for layer in self.layers:
            layer.reorder(rows)


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

    def reorder(self, rows: Tensor) -> None:
        """See `Cache.reorder`."""
        for room in (self._keys, self._values):
            room[:, :, : self.length] = room[rows, :, : self.length]
