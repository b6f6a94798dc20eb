"""`openai-gpt`: post-norm decoders as transformers' OpenAI GPT, the model of Radford et al. 2018."""

from __future__ import annotations

from typing import Any

from dupt_swarm.learning.architectures.architecture import Architecture, Config
from dupt_swarm.learning.architectures.gpt2 import GPT_DROPOUTS, GPT_KEYS, GPT_PARTS, GPT_ROWS
from dupt_swarm.learning.architectures.gpt2 import tidy as tidy_gpt2
from dupt_swarm.learning.architectures.names import Names, Row
from dupt_swarm.manifest import Model

NAMES = Names(
    (
        Row("wte", "transformer.tokens_embed"),
        Row("wpe", "transformer.positions_embed"),
        *GPT_ROWS,
    ),
    prefix="transformer.",
    passed_over=("transformer.h.*.attn.bias", "transformer.position_ids"),
)


def tidy(config: Config) -> dict[str, Any]:
    """As GPT-2's; but a width of the feed-forward layer means nothing there."""
    return tidy_gpt2({key: value for key, value in config.items() if key != "n_inner"})


def too_odd(model: Model) -> str:
    """See `Architecture`."""
    if model.hidden_width == 4 * model.width:
        return ""
    return (
        f"the format's feed-forward layers are 4 × width = {4 * model.width} wide, "
        f"the model's {model.hidden_width} (hidden_width)"
    )


OPENAI_GPT = Architecture(
    name="openai-gpt",
    class_name="OpenAIGPTLMHeadModel",
    heads={"multiple-choice": "OpenAIGPTDoubleHeadsModel"},
    names=NAMES,
    keys=GPT_KEYS,
    parts=GPT_PARTS | {"placement": "post"},
    fixed={"afn": ("gelu",), "tie_word_embeddings": (True,)},  # its name there for GELU's tanh form
    end="\n</w>",  # in the published vocabulary; its encoding never gives it
    dropouts=GPT_DROPOUTS,
    tidy=tidy,
    too_odd=too_odd,
)
