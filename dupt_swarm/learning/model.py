"""The GPT decoder: h_0 = U·W_e + W_p, transformer blocks, P(u) = softmax(h_n·W_eᵀ).

With ``norm = "post"`` it is GPT-1 (Radford et al. 2018, "Improving Language Understanding by Generative
Pre-Training", sections 3.1 and 4.1), with ``norm = "pre"`` GPT-2 (Radford et al. 2019, section 2.3).
Shapes: B sequences, T tokens each, C = width, V = vocabulary size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Model

if TYPE_CHECKING:
    from dupt_swarm.learning.generation.cache import Cache, LayerCache


class GPT(nn.Module):
    """A decoder of the manifest's shape, its weights drawn with seed 0 (`init_weights` draws others)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocabulary_size, config.width)  # W_e, of the input and of the output
        self.wpe = nn.Embedding(config.context_length, config.width)  # W_p
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        self.init_weights(0)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw weights and embeddings from N(0, init_std), with zero biases and unit gains.

        The same seed gives the same bits whatever the model's device. GPT-1 section 4.1; with norm "pre" the
        last projection of each residual branch is divided by √(2·layers), as in GPT-2 section 2.3.
        """
        if self.wte.weight.is_meta:
            return
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
                continue
            std = self.config.init_std
            if self.config.norm == "pre" and name.endswith("c_proj.weight"):
                std /= math.sqrt(2 * self.config.layers)
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))

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
            return F.linear(x, self.wte.weight)
        return linear_cross_entropy(x.flatten(0, 1), self.wte.weight, targets.flatten())

    def hidden(self, inputs: Tensor, cache: Cache | None = None) -> Tensor:
        """h_n, what the last block gives (after the last layer norm with norm "pre").

        Args:
            inputs: int64 [B, T].
            cache: what the model has read already, on which the inputs follow; they are in it afterwards.

        Returns:
            [B, T, C].

        Raises:
            UsageError: the inputs, with those in the cache, are longer than the context.
        """
        start = 0 if cache is None else cache.length
        end = start + inputs.size(1)
        if end > self.config.context_length:
            raise UsageError(
                f"{end} tokens are more than the context of {self.config.context_length}; "
                "give the model the last ones only"
            )
        x: Tensor = self.drop(self.wte(inputs) + self.wpe.weight[start:end])
        layers: Sequence[LayerCache | None] = [None] * len(self.h) if cache is None else cache.layers
        for block, layer in zip(self.h, layers, strict=True):
            x = block(x, layer)
        return self.ln_f(x)  # type: ignore[no-any-return]

    def parameter_count(self) -> int:
        """How many weights are trained; the tied embedding counts once."""
        return sum(parameter.numel() for parameter in self.parameters())


class Block(nn.Module):
    """Attention and feed-forward layer, each with a residual sum and a layer norm."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.norm = config.norm
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        if self.norm == "post":
            x = self.ln_1(x + self.attn(x, cache))
            return self.ln_2(x + self.mlp(x))  # type: ignore[no-any-return]
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """Causal multi-head self-attention (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.width, 3 * config.width)  # query, key and value in one product
        self.c_proj = nn.Linear(config.width, config.width)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        """[B, T, C] to [B, T, C]; position t sees positions ≤ t, and all those in the cache."""
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(C, dim=2)
        )
        if cache is None:
            y = causal_attention(q, k, v, self.dropout if self.training else 0.0)
        else:
            y = cache.attend(q, k, v)
        y = self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return self.resid_dropout(y)  # type: ignore[no-any-return]


class MLP(nn.Module):
    """The position-wise feed-forward layer, with the tanh form of GELU as in GPT-1."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.width, config.hidden_width)
        self.c_proj = nn.Linear(config.hidden_width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, C] to [B, T, C]."""
        x = F.gelu(self.c_fc(x), approximate="tanh")
        return self.dropout(self.c_proj(x))  # type: ignore[no-any-return]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float) -> Tensor:
    """softmax(q·kᵀ ÷ √D + causal mask)·v of [B, heads, T, D] each, with dropout on the probabilities."""
    T, D = q.shape[-2:]
    if q.device.type != "cpu" or q.dtype != torch.bfloat16 or T > 512:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
    # The same in plain products: on CPUs in bf16 that takes half the time of PyTorch's fused kernel.
    future = torch.full((T, T), -torch.inf, dtype=q.dtype, device=q.device).triu(1)
    with torch.autocast("cpu", enabled=False):  # it would make fp32 copies; softmax sums in fp32 anyway
        probabilities = torch.softmax(((q * D**-0.5) @ k.transpose(-1, -2)).add_(future), dim=-1)
        return F.dropout(probabilities, dropout) @ v


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor, shares: Tensor | None = None) -> Tensor:
    """The mean of −log softmax(x·weightᵀ)[target] over the rows, in nats; with ``shares`` a weighted sum.

    Equal to ``F.cross_entropy(F.linear(x, weight), targets)`` in a third of its memory, which makes it
    faster on CPUs: under autocast the logits are kept once, in bf16, and become their own gradient in place,
    while the softmax runs in fp32 on as many rows at a time as the caches hold.

    Args:
        x: [N, C], weight: [V, C], targets: int64 [N].
        shares: fp32 [N], what each row counts for; None: 1 / N.

    Returns:
        An fp32 scalar; it can be differentiated once.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
    if not torch.is_grad_enabled():  # a function is not told, and would prepare the gradient in vain
        x, weight = x.detach(), weight.detach()
    return _LinearCrossEntropy.apply(x, weight, targets, shares)  # type: ignore[no-untyped-call, no-any-return]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, shares: Tensor | None) -> Tensor:
        logits = x @ weight.T
        loss = torch.zeros((), device=x.device)
        rows = _rows_at_a_time(logits)
        for start in range(0, len(logits), rows):
            part, target = logits[start : start + rows], targets[start : start + rows]
            logp = F.log_softmax(part, dim=-1, dtype=torch.float32)
            here = torch.arange(len(part), device=x.device), target
            target_logp = logp[here]
            loss -= (target_logp if shares is None else target_logp * shares[start : start + rows]).sum()
            if any(ctx.needs_input_grad):
                # d loss / d logits = (softmax − one-hot) · share; backward multiplies by the share.
                part.copy_(logp.exp_())
                part[here] = target_logp.expm1().to(part.dtype)
        ctx.save_for_backward(logits, x, weight, shares)
        return loss / targets.numel() if shares is None else loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        difference, x, weight, shares = ctx.saved_tensors
        if shares is None:
            scale = grad / x.size(0)
            return (difference @ weight).mul_(scale), (difference.T @ x).mul_(scale), None, None
        scale = (grad * shares).unsqueeze(1).to(x.dtype)
        return (difference @ weight).mul_(scale), difference.T @ (x * scale), None, None


def _rows_at_a_time(logits: Tensor) -> int:
    if torch.compiler.is_compiling():
        return logits.size(0)  # the compiler fuses the steps and keeps no fp32 copy
    elements = 1 << 19 if logits.device.type == "cpu" else 1 << 26  # 2 MiB for the caches, or 256 MiB
    return max(1, elements // logits.size(1))
