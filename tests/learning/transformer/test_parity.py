"""With the same weights the decoder computes what the models of `transformers` compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from dupt_swarm.learning.architectures import ARCHITECTURES
from dupt_swarm.learning.architectures.names import Names
from dupt_swarm.learning.transformer.gpt import GPT
from tests.learning.transformer.test_gpt import small
from tests.support.hugging_face import no_complaints
from tests.support.varied import varied

LLAMA, PALM = ARCHITECTURES["llama"].parts, ARCHITECTURES["cohere"].parts
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt1": ("openai-gpt", {"placement": "post"}),
    "gpt2": ("gpt2", {"placement": "pre", "norm_epsilon": 1e-3}),
    "llama multi-head": ("llama", {**LLAMA, "tie_embeddings": False, "hidden_width": 88}),
    "llama grouped": ("llama", {**LLAMA, "kv_heads": 2, "tie_embeddings": True, "norm_epsilon": 1e-3}),
    "llama multi-query": ("llama", {**LLAMA, "kv_heads": 1, "rotary_base": 500_000.0}),
    "palm multi-query": ("cohere", {**PALM, "kv_heads": 1, "hidden_width": 88}),
    "palm grouped": ("cohere", {**PALM, "kv_heads": 2, "tie_embeddings": False, "rotary_base": 500_000.0}),
}


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
    """GPT-1, GPT-2, LLaMA and PaLM's block: multi-head, grouped and multi-query, tied and untied."""
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
