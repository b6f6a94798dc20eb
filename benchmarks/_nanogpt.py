"""A GPT and training loop in nanoGPT's manner (github.com/karpathy/nanoGPT): the baseline of `local_speed`.

Pre-norm blocks, learned positions, PyTorch's scaled dot-product attention, the loss over full logits,
AdamW (fused), gradients accumulated and clipped, the next batch read from memory-mapped tokens while the
GPU is busy.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.device import autocast
from dupt_swarm.manifest import Inner, Model


class PlainAttention(nn.Module):
    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)
        self.resid_dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))  # type: ignore[no-any-return]


class PlainBlock(nn.Module):
    def __init__(self, config: Model) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attn = PlainAttention(config)
        self.c_fc = nn.Linear(config.width, config.hidden_width)
        self.c_proj = nn.Linear(config.hidden_width, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        # nanoGPT has the exact GELU; the tanh approximation is the product's, so both compute the same.
        h = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.dropout(self.c_proj(h))  # type: ignore[no-any-return]


class PlainGPT(nn.Module):
    def __init__(self, config: Model) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocabulary_size, config.width)
        self.wpe = nn.Embedding(config.context_length, config.width)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList(PlainBlock(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary_size, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                std = 0.02 / (math.sqrt(2 * config.layers) if name.endswith("c_proj.weight") else 1)
                nn.init.normal_(parameter, std=std)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        positions = torch.arange(idx.size(1), device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


class PlainLoop:
    """nanoGPT's training loop, one iteration at a time."""

    def __init__(
        self,
        model: PlainGPT,
        inner: Inner,
        data: np.ndarray,
        shape: tuple[int, int, int],
        device: torch.device,
    ) -> None:
        """``shape`` is (micro-batches in a step, sequences in a micro-batch, tokens in a sequence)."""
        self.model, self.data, self.device, self.clip = model, data, device, inner.clip_norm
        self.micro_batches, self.batch_size, self.block_size = shape
        decay = [p for p in model.parameters() if p.dim() >= 2]
        no_decay = [p for p in model.parameters() if p.dim() < 2]
        groups = [
            {"params": decay, "weight_decay": inner.weight_decay},
            {"params": no_decay, "weight_decay": 0},
        ]
        fused = True if device.type in ("cpu", "cuda") else None
        self.optimizer = torch.optim.AdamW(
            groups, lr=inner.learning_rate, betas=(inner.beta1, inner.beta2), eps=inner.epsilon, fused=fused
        )
        self.batch = self.get_batch()

    def get_batch(self) -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(self.data) - self.block_size, (self.batch_size,)).tolist()
        x = torch.stack(
            [torch.from_numpy(self.data[i : i + self.block_size].astype(np.int64)) for i in starts]
        )
        y = torch.stack(
            [torch.from_numpy(self.data[i + 1 : i + 1 + self.block_size].astype(np.int64)) for i in starts]
        )
        if self.device.type == "cuda":
            x, y = x.pin_memory(), y.pin_memory()
        return x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)

    def step(self) -> int:
        """Run one iteration; return the number of tokens it trained on."""
        for _ in range(self.micro_batches):
            with autocast(self.device):
                loss = self.model(*self.batch) / self.micro_batches
            self.batch = self.get_batch()
            loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return self.micro_batches * self.batch_size * self.block_size
