"""With the same weights the decoder computes what the models of `transformers` compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.architectures.names import Names, Row
from dupt_swarm.learning.decoder.gpt import GPT
from tests.learning.decoder.test_gpt import small
from tests.support.hugging_face import no_complaints

LLAMA = ARCHITECTURES["llama"].parts
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt1": ("openai-gpt", {"placement": "post"}),
    "gpt2": ("gpt2", {"placement": "pre", "norm_epsilon": 1e-3}),
    "llama multi-head": ("llama", {**LLAMA, "tie_embeddings": False, "hidden_width": 88}),
    "llama grouped": ("llama", {**LLAMA, "kv_heads": 2, "tie_embeddings": True, "norm_epsilon": 1e-3}),
    "llama multi-query": ("llama", {**LLAMA, "kv_heads": 1, "rotary_base": 500_000.0}),
}
FALCON = Names(
    (
        Row("wte", "transformer.word_embeddings"),
        Row("h.*.ln_1", "transformer.h.*.input_layernorm"),
        Row("h.*.attn.c_attn", "transformer.h.*.self_attention.query_key_value"),
        Row("h.*.attn.c_proj", "transformer.h.*.self_attention.dense"),
        Row("h.*.mlp.c_fc", "transformer.h.*.mlp.dense_h_to_4h"),
        Row("h.*.mlp.c_proj", "transformer.h.*.mlp.dense_4h_to_h"),
        Row("ln_f", "transformer.ln_f"),
    ),
    prefix="transformer.",
)


def varied(model: GPT) -> GPT:
    """With biases and gains that matter."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return model.eval()


def compare(model: GPT, reference: Any, names: Names) -> None:
    """Logits, loss and every gradient, to 1e-5."""
    reference.eval()
    given = names.to_theirs(model.state_dict(), model.config)
    missing, unexpected = reference.load_state_dict(given, strict=False)
    assert not unexpected
    reference.tie_weights()
    tokens = torch.randint(0, 300, (3, 12), generator=torch.Generator().manual_seed(1))
    theirs = reference(tokens, labels=tokens)
    loss = model(tokens[:, :-1], tokens[:, 1:])
    torch.testing.assert_close(model(tokens), theirs.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(loss, theirs.loss, rtol=0, atol=1e-5)
    theirs.loss.backward()
    loss.backward()
    gradients: dict[str, Any] = {name: parameter.grad for name, parameter in model.named_parameters()}
    ours = names.to_theirs(gradients, model.config)
    expected = {name: p.grad for name, p in reference.named_parameters() if name not in missing}
    assert ours.keys() == expected.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_transformers_computes(name: str) -> None:
    """GPT-1, GPT-2 and LLaMA: multi-head, grouped and multi-query, tied and untied."""
    architecture, parts = MODELS[name]
    config = small(init_std=0.2, **parts)
    table = ARCHITECTURES[architecture]
    assert table.problem(config) == ""
    with no_complaints():
        settings = transformers.AutoConfig.for_model(
            architecture, **table.settings(config), bos_token_id=None, eos_token_id=None
        )
        reference = transformers.AutoModelForCausalLM.from_config(settings)
    compare(varied(GPT(config)), reference, table.names)


def test_it_computes_what_a_parallel_block_computes() -> None:
    """PaLM's parallel block with multi-query attention and rotary positions is Falcon's, but for SwiGLU."""
    parts = {"placement": "parallel", "positions": "rotary", "kv_heads": 1}
    config = small(init_std=0.2, biases=False, feed_forward="gelu", **parts)
    settings = transformers.FalconConfig(
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=12,
        ffn_hidden_size=128,
        layer_norm_epsilon=1e-5,
        activation="gelu_pytorch_tanh",
        alibi=False,
        bias=False,
        multi_query=True,
        parallel_attn=True,
        new_decoder_architecture=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    # Its layer norms have biases, which are zero at the beginning.
    compare(varied(GPT(config)), transformers.FalconForCausalLM(settings), FALCON)
