"""What has no counterpart in `transformers` is compared with the papers' formulas, written out."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from dupt_swarm.learning.transformer.block import Block
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.learning.transformer.positions import Rotary
from dupt_swarm.manifest import Model

V, T, C, H, D = 300, 10, 32, 4, 8


def decoder(**parts: Any) -> GPT:
    """A small one, whose gains and biases matter."""
    shape = {"vocabulary_size": V, "context_length": T, "layers": 1, "heads": H, "width": C}
    model = GPT(Model(**(shape | {"hidden_width": 48, "init_std": 0.2} | parts)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double()


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """Over the last dimension."""
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() * gain + bias


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Of one head, [T, D] each: softmax(q·kᵀ ÷ √D)·v, each row without what follows on it."""
    rows = []
    for t in range(len(q)):
        weights = (k[: t + 1] @ q[t] / D**0.5).exp()
        rows.append(weights @ v[: t + 1] / weights.sum())
    return torch.stack(rows)


def rotate(x: Tensor, base: float) -> Tensor:
    """RoFormer's equation 15 on [T, D], with features i and i + D ÷ 2 as a pair, by complex numbers."""
    half = D // 2
    angles = [[t * base ** (-2 * i / D) for i in range(half)] for t in range(len(x))]
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.tensor(angles, dtype=torch.float64).mul(1j).exp()
    return torch.cat((turned.real, turned.imag), dim=1)


def test_palms_block() -> None:
    """y = x + MLP(LayerNorm(x)) + Attention(LayerNorm(x)), SwiGLU, one head of keys and values, no biases."""
    model = decoder(
        placement="parallel",
        positions="rotary",
        feed_forward="swiglu",
        kv_heads=1,
        biases=False,
        rotary_base=100.0,
    )
    tokens = torch.randint(V, (T,))
    w = dict(model.h[0].named_parameters())
    x = model.wte.weight[tokens]
    n = layer_norm(x, w["ln_1.weight"])
    query, key, value = (n @ w["attn.c_attn.weight"].T).split((C, D, D), dim=1)
    key = rotate(key, 100.0)
    heads = [attention(rotate(q, 100.0), key, value) for q in query.split(D, dim=1)]
    gate = n @ w["mlp.c_gate.weight"].T
    hidden = gate * torch.sigmoid(gate) * (n @ w["mlp.c_fc.weight"].T)
    y = x + torch.cat(heads, dim=1) @ w["attn.c_proj.weight"].T + hidden @ w["mlp.c_proj.weight"].T
    logits = layer_norm(y, cast(Tensor, model.ln_f.weight)) @ model.wte.weight.T
    torch.testing.assert_close(model(tokens[None])[0], logits, rtol=0, atol=1e-5)


def test_the_transformers_block() -> None:
    """√d·W_e + sinusoids; LayerNorm(x + Attention(x)); LayerNorm(x + max(0, x·W_1 + b_1)·W_2 + b_2)."""
    model = decoder(placement="post", positions="sinusoidal", feed_forward="relu")
    tokens = torch.randint(V, (T,))
    w = dict(model.h[0].named_parameters())
    table = torch.empty(T, C, dtype=torch.float64)
    for position in range(T):
        for i in range(C // 2):
            angle = torch.tensor(position / 10000 ** (2 * i / C), dtype=torch.float64)
            table[position, 2 * i], table[position, 2 * i + 1] = angle.sin(), angle.cos()
    x = C**0.5 * model.wte.weight[tokens] + table
    parts = (x @ w["attn.c_attn.weight"].T + w["attn.c_attn.bias"]).split(C, dim=1)
    heads = [attention(q, k, v) for q, k, v in zip(*(part.split(D, dim=1) for part in parts), strict=True)]
    attended = torch.cat(heads, dim=1) @ w["attn.c_proj.weight"].T + w["attn.c_proj.bias"]
    x = layer_norm(x + attended, w["ln_1.weight"], w["ln_1.bias"])
    hidden = (x @ w["mlp.c_fc.weight"].T + w["mlp.c_fc.bias"]).clamp(min=0)
    x = layer_norm(
        x + hidden @ w["mlp.c_proj.weight"].T + w["mlp.c_proj.bias"], w["ln_2.weight"], w["ln_2.bias"]
    )
    torch.testing.assert_close(model(tokens[None])[0], x @ model.wte.weight.T, rtol=0, atol=1e-5)


def test_rms_norm_and_qk_norm() -> None:
    """x ÷ √(mean of x² + ε)·g; with `qk_norm` so are each head's queries and keys before they are turned."""
    model = decoder(norm="rms", qk_norm=True, biases=False, positions="rotary")
    tokens = torch.randint(V, (T,))
    w = dict(model.h[0].named_parameters())

    def rms(x: Tensor, gain: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    x = model.wte.weight[tokens]
    query, key, value = (rms(x, w["ln_1.weight"]) @ w["attn.c_attn.weight"].T).split(C, dim=1)
    heads = [
        attention(
            rotate(rms(q, w["attn.q_norm.weight"]), 10_000.0),
            rotate(rms(k, w["attn.k_norm.weight"]), 10_000.0),
            v,
        )
        for q, k, v in zip(*(part.split(D, dim=1) for part in (query, key, value)), strict=True)
    ]
    attended = torch.cat(heads, dim=1) @ w["attn.c_proj.weight"].T
    layer, positions = cast(Block, model.h[0]).attn, cast(Rotary, model.wpe)
    given = layer(rms(x, w["ln_1.weight"])[None], positions.turn(0, T))[0]
    torch.testing.assert_close(given, attended, rtol=0, atol=1e-5)
