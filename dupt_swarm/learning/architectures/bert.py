"""`bert`: encoders as transformers' BERT, the model of Devlin et al. 2018 (arXiv:1810.04805)."""

from __future__ import annotations

from typing import Any

from dupt_swarm.learning.architectures.architecture import SHAPE_KEYS, Architecture, Config
from dupt_swarm.learning.architectures.names import Names, Row

LAYER = "bert.encoder.layer.*"
NAMES = Names(
    (
        Row("wte", "bert.embeddings.word_embeddings"),
        Row("wpe", "bert.embeddings.position_embeddings"),
        Row("wse", "bert.embeddings.token_type_embeddings"),
        Row("ln_e", "bert.embeddings.LayerNorm"),
        Row("h.*.ln_1", f"{LAYER}.attention.output.LayerNorm"),
        Row(
            "h.*.attn.c_attn",
            tuple(f"{LAYER}.attention.self.{name}" for name in ("query", "key", "value")),
        ),
        Row("h.*.attn.c_proj", f"{LAYER}.attention.output.dense"),
        Row("h.*.ln_2", f"{LAYER}.output.LayerNorm"),
        Row("h.*.mlp.c_fc", f"{LAYER}.intermediate.dense"),
        Row("h.*.mlp.c_proj", f"{LAYER}.output.dense"),
        Row("pooler", "bert.pooler.dense"),
        Row("transform", "cls.predictions.transform.dense"),
        Row("ln_t", "cls.predictions.transform.LayerNorm"),
        Row("output", "cls.predictions"),
        Row("follows", "cls.seq_relationship"),
        Row("head", "classifier"),
    ),
    prefix="bert.",
    passed_over=("bert.embeddings.position_ids",),
    tied={"cls.predictions.decoder.weight": "wte.weight", "cls.predictions.decoder.bias": "output.bias"},
    older={
        "LayerNorm.weight": "LayerNorm.gamma",  # as in the files that were converted from Google's
        "LayerNorm.bias": "LayerNorm.beta",
        "predictions.bias": "predictions.decoder.bias",
    },
    optional=("pooler", "follows"),  # a BertForMaskedLM has neither
)
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
DEFAULTS = {"layer_norm_eps": 1e-12, "initializer_range": 0.02} | dict.fromkeys(DROPOUTS, 0.1)


def tidy(config: Config) -> dict[str, Any]:
    """What is left out is what transformers takes."""
    return DEFAULTS | dict(config)


BERT = Architecture(
    name="bert",
    class_name="BertForPreTraining",
    heads={
        "classification": "BertForSequenceClassification",
        "entailment": "BertForSequenceClassification",
        "multiple-choice": "BertForMultipleChoice",
    },
    names=NAMES,
    keys={
        **SHAPE_KEYS,
        "layer_norm_eps": "norm_epsilon",
        "initializer_range": "init_std",
    },
    parts={
        "bidirectional": True,
        "encoder_layers": 0,
        "kv_heads": 0,
        "positions": "learned",
        "norm": "layer",
        "placement": "post",
        "biases": True,
        "tie_embeddings": True,
        "qk_norm": False,
    },
    fixed={
        "position_embedding_type": ("absolute",),
        "type_vocab_size": (2,),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
    },
    choices={
        "hidden_act": (
            "feed_forward",
            {
                "gelu": "gelu_erf",
                "gelu_new": "gelu",
                "gelu_pytorch_tanh": "gelu",
                "gelu_fast": "gelu",
                "relu": "relu",
            },
        )
    },
    end="[SEP]",
    dropouts=DROPOUTS,
    language_head="cls.",
    loader="AutoModelForPreTraining",
    tidy=tidy,
)
