"""Format `gpt2`: pre-norm decoders as transformers' GPT-2, the model of Radford et al. 2019."""

from __future__ import annotations

from typing import Any

from dupt_swarm.learning.export.architecture import HEAD, Architecture
from dupt_swarm.learning.export.names import Names, Row
from dupt_swarm.manifest import Model

NAMES = Names(
    (
        Row("wte", "transformer.wte"),
        Row("wpe", "transformer.wpe"),
        Row("h.*.ln_1", "transformer.h.*.ln_1"),
        Row("h.*.attn.c_attn", "transformer.h.*.attn.c_attn", conv1d=True),
        Row("h.*.attn.c_proj", "transformer.h.*.attn.c_proj", conv1d=True),
        Row("h.*.ln_2", "transformer.h.*.ln_2"),
        Row("h.*.mlp.c_fc", "transformer.h.*.mlp.c_fc", conv1d=True),
        Row("h.*.mlp.c_proj", "transformer.h.*.mlp.c_proj", conv1d=True),
        Row("ln_f", "transformer.ln_f"),
        Row("head", HEAD),
    ),
    tied=frozenset({"lm_head.weight"}),
)


def problem(model: Model) -> str:
    """Why the format cannot hold a model of this shape, or an empty string."""
    if model.norm != "pre":
        return 'the format puts layer norms before each residual sum, the model after (norm = "post")'
    return ""


def settings(model: Model) -> dict[str, Any]:
    """What config.json says besides what all architectures do."""
    return {"activation_function": "gelu_new", "n_inner": model.hidden_width, "scale_attn_weights": True}


GPT2 = Architecture("gpt2", "GPT2LMHeadModel", "GPT2DoubleHeadsModel", NAMES, problem, settings)
