"""`gpt2`: pre-norm decoders as transformers' GPT-2, the model of Radford et al. 2019."""

from __future__ import annotations

from typing import Any

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.architectures.architecture import DECODER, Architecture, Config
from dupt_swarm.learning.architectures.names import Names, Row
from dupt_swarm.manifest import Model

# What OpenAI GPT's models have too.
GPT_ROWS = (
    Row("h.*.ln_1", "transformer.h.*.ln_1"),
    Row("h.*.attn.c_attn", "transformer.h.*.attn.c_attn", conv1d=True),
    Row("h.*.attn.c_proj", "transformer.h.*.attn.c_proj", conv1d=True),
    Row("h.*.ln_2", "transformer.h.*.ln_2"),
    Row("h.*.mlp.c_fc", "transformer.h.*.mlp.c_fc", conv1d=True),
    Row("h.*.mlp.c_proj", "transformer.h.*.mlp.c_proj", conv1d=True),
    Row("head", "multiple_choice_head.summary"),  # of the double-heads models
)
NAMES = Names(
    (
        Row("wte", "transformer.wte"),
        Row("wpe", "transformer.wpe"),
        *GPT_ROWS,
        Row("ln_f", "transformer.ln_f"),
    ),
    prefix="transformer.",
    passed_over=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
)
GPT_KEYS = {
    "vocab_size": "vocabulary_size",
    "n_positions": "context_length",
    "n_embd": "width",
    "n_inner": "hidden_width",
    "n_layer": "layers",
    "n_head": "heads",
    "layer_norm_epsilon": "norm_epsilon",
    "initializer_range": "init_std",
}
GPT_PARTS: dict[str, Any] = {
    **DECODER,
    "kv_heads": 0,
    "positions": "learned",
    "norm": "layer",
    "feed_forward": "gelu",
    "biases": True,
    "tie_embeddings": True,
    "qk_norm": False,
}
GPT_ALIASES = {
    "max_position_embeddings": "n_positions",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
}
GPT_DROPOUTS = ("embd_pdrop", "attn_pdrop", "resid_pdrop")
GPT_DEFAULTS = {"layer_norm_epsilon": 1e-5, "initializer_range": 0.02} | dict.fromkeys(GPT_DROPOUTS, 0.1)


def tidy(config: Config) -> dict[str, Any]:
    """Without n_inner, the feed-forward layer is four times as wide as the others; keys may have other names.

    Raises:
        ManifestError: two names of a key have different values.
    """
    found = GPT_DEFAULTS | dict(config)
    for alias, key in GPT_ALIASES.items():
        if found.get(alias, found.get(key)) != found.setdefault(key, found.get(alias)):
            raise ManifestError(f"config.json: {key} and {alias} differ; take another model")
    found = {key: value for key, value in found.items() if value is not None}
    return {"n_inner": 4 * found["n_embd"]} | found if "n_embd" in found else found


def more(model: Model) -> dict[str, Any]:
    """The context's name of old, which llama.cpp's converter reads."""
    return {"n_ctx": model.context_length}


GPT2 = Architecture(
    name="gpt2",
    class_name="GPT2LMHeadModel",
    heads={"multiple-choice": "GPT2DoubleHeadsModel"},
    names=NAMES,
    keys=GPT_KEYS,
    parts=GPT_PARTS | {"placement": "pre"},
    fixed={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
    },
    dropouts=GPT_DROPOUTS,
    tidy=tidy,
    more=more,
)
