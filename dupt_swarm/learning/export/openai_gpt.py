"""Format `openai-gpt`: post-norm decoders as transformers' OpenAI GPT, the model of Radford et al. 2018."""

from __future__ import annotations

from typing import Any

from dupt_swarm.learning.export.architecture import HEAD, Architecture
from dupt_swarm.learning.export.names import Names, Row
from dupt_swarm.manifest import Model

NAMES = Names(
    (
        Row("wte", "transformer.tokens_embed"),
        Row("wpe", "transformer.positions_embed"),
        Row("h.*.attn.c_attn", "transformer.h.*.attn.c_attn", conv1d=True),
        Row("h.*.attn.c_proj", "transformer.h.*.attn.c_proj", conv1d=True),
        Row("h.*.ln_1", "transformer.h.*.ln_1"),
        Row("h.*.mlp.c_fc", "transformer.h.*.mlp.c_fc", conv1d=True),
        Row("h.*.mlp.c_proj", "transformer.h.*.mlp.c_proj", conv1d=True),
        Row("h.*.ln_2", "transformer.h.*.ln_2"),
        Row("head", HEAD),
    ),
    tied=frozenset({"lm_head.weight"}),
)


def problem(model: Model) -> str:
    """Why the format cannot hold a model of this shape, or an empty string."""
    if model.norm != "post":
        return 'the format puts layer norms after each residual sum, the model before (norm = "pre")'
    if model.hidden_width != 4 * model.width:
        return (
            f"the format's feed-forward layers are 4 × width = {4 * model.width} wide, "
            f"the model's {model.hidden_width} (hidden_width)"
        )
    return ""


def settings(_model: Model) -> dict[str, Any]:
    """What config.json says besides what all architectures do."""
    return {"afn": "gelu"}  # its name there for GELU's tanh form


OPENAI_GPT = Architecture(
    "openai-gpt", "OpenAIGPTLMHeadModel", "OpenAIGPTDoubleHeadsModel", NAMES, problem, settings
)
