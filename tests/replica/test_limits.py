"""How large a state may be."""

import pytest

from dupt_swarm.learning.model import GPT
from dupt_swarm.replica.limits import gpt_numel, numel_max
from tests.support.tiny import tiny_manifest


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_count_is_that_of_the_model(norm: str) -> None:
    """Exactly the weights of a pre-norm GPT; a post-norm one lacks the last layer norm."""
    config = tiny_manifest(model={"norm": norm, "layers": 3}).model
    without = 0 if norm == "pre" else 2 * config.width
    assert gpt_numel(config) - without == GPT(config).parameter_count()


def test_the_bound_is_generous() -> None:
    """A small manifest allows modules of 200 million weights, a large one several times its GPT."""
    small = tiny_manifest().model
    assert numel_max(tiny_manifest()) >= 200_000_000
    large = tiny_manifest(model={"width": 4096, "hidden_width": 16384, "layers": 48})
    assert numel_max(large) == 16 * gpt_numel(large.model) > 100 * gpt_numel(small)
