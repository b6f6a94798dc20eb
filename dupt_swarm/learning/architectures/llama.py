"""`llama`: pre-norm decoders with RMS norm, SwiGLU and rotary positions (Touvron et al. 2023).

arXiv:2302.13971. SmolLM, TinyLlama and many others have this architecture.
"""

from __future__ import annotations

from typing import Any

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.architectures.architecture import (
    DECODER,
    SHAPE_KEYS,
    Architecture,
    Config,
    shortened,
)
from dupt_swarm.learning.architectures.names import Names, Row
from dupt_swarm.manifest import Model

ROTARY_BASE = 10_000.0


NAMES = Names(
    (
        Row("wte", "model.embed_tokens"),
        Row("h.*.ln_1", "model.layers.*.input_layernorm"),
        Row("h.*.attn.c_attn", tuple(f"model.layers.*.self_attn.{name}_proj" for name in ("q", "k", "v"))),
        Row("h.*.attn.c_proj", "model.layers.*.self_attn.o_proj"),
        Row("h.*.ln_2", "model.layers.*.post_attention_layernorm"),
        Row("h.*.mlp.c_gate", "model.layers.*.mlp.gate_proj"),
        Row("h.*.mlp.c_fc", "model.layers.*.mlp.up_proj"),
        Row("h.*.mlp.c_proj", "model.layers.*.mlp.down_proj"),
        Row("ln_f", "model.norm"),
        Row("lm_head", "lm_head"),
    ),
    prefix="model.",
    passed_over=("model.layers.*.self_attn.rotary_emb.inv_freq",),
)


def too_odd(model: Model) -> str:
    """See `Architecture`."""
    return "the format has no dropout on embeddings and residuals" if model.dropout else ""


def tidy(config: Config) -> dict[str, Any]:
    """Of version 5 of transformers, rotary positions have a table of their own; scaled ones are refused."""
    rotary: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    for table in (rotary, config.get("rope_scaling", {})):
        kind = table.get("rope_type", table.get("type", "default"))
        if kind != "default":
            raise ManifestError(
                f"config.json: rotary positions that are scaled (rope type {shortened(kind)}) cannot be "
                "represented here; take another model"
            )
    heads, width = config.get("num_attention_heads", 1), config.get("hidden_size", 1)
    if "head_dim" in config and config["head_dim"] * heads != width:
        raise ManifestError(
            f"config.json: head_dim = {config['head_dim']} is not hidden_size ÷ num_attention_heads = "
            f"{width} ÷ {heads}, as it is here; take another model"
        )
    kv_heads = config.get("num_key_value_heads", heads)
    base = float(rotary.get("rope_theta") or config.get("rope_theta") or ROTARY_BASE)
    defaults = {"rms_norm_eps": 1e-6, "initializer_range": 0.02, "tie_word_embeddings": False}
    return (
        defaults
        | dict(config)
        | {"num_key_value_heads": 0 if kv_heads == heads else kv_heads, "rope_theta": base}
    )


def more(model: Model) -> dict[str, Any]:
    """What older and newer versions, and other programs, read."""
    return {
        "num_key_value_heads": model.key_value_heads,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rotary_base},
    }


LLAMA = Architecture(
    name="llama",
    class_name="LlamaForCausalLM",
    heads={},
    names=NAMES,
    keys={
        **SHAPE_KEYS,
        "num_key_value_heads": "kv_heads",
        "rms_norm_eps": "norm_epsilon",
        "rope_theta": "rotary_base",
        "initializer_range": "init_std",
        "tie_word_embeddings": "tie_embeddings",
    },
    parts={
        **DECODER,
        "positions": "rotary",
        "norm": "rms",
        "placement": "pre",
        "feed_forward": "swiglu",
        "biases": False,
        "qk_norm": False,
    },
    fixed={
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "attention_dropout": (0.0,),
    },
    tidy=tidy,
    more=more,
    too_odd=too_odd,
)
