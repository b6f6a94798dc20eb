"""What a model is estimated to take of a machine."""

from typing import Any

from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import manifest_from_preset
from peers.checks.footprint import estimate_footprint
from tests.support.tiny import tiny_manifest


def gpt1() -> Manifest:
    return manifest_from_preset("gpt1", name="g", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=40257)


def test_the_estimate_is_near_what_was_measured() -> None:
    """117 M weights on a CPU: the process grew by 4.8 GB with two sequences at once, by 5.8 with four."""
    for batch_size, measured in ((2, 4.8e9), (4, 5.8e9)):
        assert measured / 1.35 < estimate_footprint(gpt1(), batch_size, "cpu").device < measured * 1.35


def test_what_grows_with_what() -> None:
    """More sequences at once take more of the device alone; a strategy without moments takes less."""
    small, large = (estimate_footprint(gpt1(), size, "cuda") for size in (1, 16))
    assert large.device > small.device + 1e9
    assert (large.node, large.disk) == (small.node, small.disk)
    plain: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.1}
    adamw = estimate_footprint(tiny_manifest(), 1, "cpu")
    sgd = estimate_footprint(tiny_manifest(inner=plain), 1, "cpu")
    assert sgd.device < adamw.device
    assert sgd.disk < adamw.disk
