"""`cohere`: decoders of PaLM's parallel block, which transformers calls Cohere (Command R).

One layer norm without bias before attention and SwiGLU beside each other, rotary positions, heads of keys and
values shared by any number of queries: Chowdhery et al. 2022 (arXiv:2204.02311), section 2. Cohere's own
models scale their logits, which there is no place for here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dupt_swarm.errors import ManifestError
from dupt_swarm.learning.architectures.architecture import Config
from dupt_swarm.learning.architectures.llama import LLAMA, NAMES
from dupt_swarm.learning.architectures.llama import more as more_of_llama
from dupt_swarm.learning.architectures.llama import tidy as tidy_llama
from dupt_swarm.learning.architectures.names import neighbours
from dupt_swarm.manifest import Model


def tidy(config: Config) -> dict[str, Any]:
    """As LLaMA's; but versions of transformers disagree on the base of rotary positions that is not named.

    Raises:
        ManifestError: it is not named.
    """
    rotary: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "rope_theta" not in {**config, **rotary}:
        raise ManifestError("config.json lacks rope_theta; fetch the model again")
    defaults = {"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "tie_word_embeddings": True}
    return tidy_llama(defaults | dict(config))


def more(model: Model) -> dict[str, Any]:
    """As LLaMA's; and no id is padding, which would be 0 if nothing were said."""
    return more_of_llama(model) | {"pad_token_id": None}


COHERE = replace(
    LLAMA,
    name="cohere",
    class_name="CohereForCausalLM",
    names=replace(
        NAMES,
        rows=tuple(
            replace(row, order=neighbours) if row.ours == "h.*.attn.c_attn" else row
            for row in NAMES.rows
            if row.ours != "h.*.ln_2"
        ),
    ),
    keys={"layer_norm_eps" if key == "rms_norm_eps" else key: ours for key, ours in LLAMA.keys.items()},
    parts={**LLAMA.parts, "norm": "layer", "placement": "parallel"},
    fixed={
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "attention_dropout": (0.0,),
        "logit_scale": (1.0,),
        "use_qk_norm": (False,),
    },
    tidy=tidy,
    more=more,
)
