"""How large a state may be."""

from typing import Any

import pytest

from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.interruptible import parameter_count
from dupt_swarm.replica.limits import gpt_numel, numel_max
from tests.support.tiny import tiny_manifest

PARTS = [
    {"placement": "pre"},
    {"placement": "post", "positions": "sinusoidal"},
    {"norm": "rms", "feed_forward": "swiglu", "kv_heads": 1, "biases": False, "tie_embeddings": False},
    {"placement": "parallel", "qk_norm": True, "positions": "rotary"},
]


@pytest.mark.parametrize("parts", PARTS)
def test_the_count_is_hardly_more_than_the_models(parts: dict[str, Any]) -> None:
    """It bounds the weights of a GPT of any parts, by a few percent."""
    config = tiny_manifest(model={**parts, "layers": 3}).model
    weights = parameter_count(GPT(config))
    assert weights <= gpt_numel(config) <= 1.05 * weights


def test_the_bound_is_generous() -> None:
    """A small manifest allows modules of 200 million weights, a large one several times its GPT."""
    small = tiny_manifest().model
    assert numel_max(tiny_manifest()) >= 200_000_000
    large = tiny_manifest(model={"width": 4096, "hidden_width": 16384, "layers": 48})
    assert numel_max(large) == 16 * gpt_numel(large.model) > 100 * gpt_numel(small)
