"""How large a state may be."""

from dupt_swarm.replica.limits import numel_max
from tests.support.tiny import tiny_manifest


def test_the_bound_is_generous() -> None:
    """A small manifest allows modules of 200 million weights, a large one several times its GPT."""
    small = tiny_manifest().model
    assert numel_max(tiny_manifest()) >= 200_000_000
    large = tiny_manifest(model={"width": 4096, "hidden_width": 16384, "layers": 48})
    assert numel_max(large) == 16 * large.model.numel > 100 * small.numel
