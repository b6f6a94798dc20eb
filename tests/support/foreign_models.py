"""Folders in Hugging Face's format as `transformers` writes them, with small random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from dupt_swarm.learning.tokenizer_json.opening import parse as read
from tests.support.foreign_tokenizers import bert_uncased
from tests.support.hugging_face import no_complaints
from tests.support.saved_models import small_tokenizer

CONTEXT = 16
LLAMA: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
GPT: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
COHERE = LLAMA | {"logit_scale": 1.0, "pad_token_id": None}
SHAPES = {"llama": LLAMA, "cohere": COHERE, "gpt2": GPT, "openai-gpt": GPT}
BERT = {key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"}


def write_encoder(folder: Path, loader: str = "BertForPreTraining", **settings: Any) -> Any:
    """Write a BERT of this class of `transformers` with a tokenizer like its own; see `write_foreign`."""
    import transformers

    data, _ = bert_uncased()
    shape = BERT | {"vocab_size": len(read(data).get_vocab()), "initializer_range": 0.2}
    with no_complaints():
        config = transformers.AutoConfig.for_model("bert", **(shape | settings))
        torch.manual_seed(1)
        model = getattr(transformers, loader)(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(data)
    return model


def write_foreign(
    folder: Path, kind: str = "llama", dtype: torch.dtype = torch.float32, **settings: Any
) -> Any:
    """Write a model of this architecture with our small tokenizer; ``settings`` are of its config.

    Returns:
        the model as `transformers` has it, in evaluation mode.
    """
    import transformers

    tokenizer = small_tokenizer()
    end = {"bos_token_id": tokenizer.end_of_text, "eos_token_id": tokenizer.end_of_text}
    shape = SHAPES[kind] | {"vocab_size": tokenizer.vocabulary_size, "initializer_range": 0.2} | end
    with no_complaints():
        config = transformers.AutoConfig.for_model(kind, **(shape | settings))
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
        model.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(tokenizer.to_bytes())
    return model
