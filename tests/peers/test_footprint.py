"""What a model is estimated to take of a machine."""

from typing import Any

from dupt_swarm.learning.room import Saving
from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import manifest_from_preset
from peers.checks.footprint import GPU_PROGRAM, PROGRAM, _activation_bytes, estimate_footprint
from tests.support.tiny import tiny_manifest


def gpt1() -> Manifest:
    return manifest_from_preset("gpt1", name="g", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=40257)


def test_the_estimate_is_near_what_was_measured() -> None:
    """117 M weights on a CPU: the process grew by 4.8 GB with two sequences at once, by 5.8 with four."""
    for batch_size, measured in ((2, 4.8e9), (4, 5.8e9)):
        assert measured / 1.35 < estimate_footprint(gpt1(), batch_size, "cpu").device < measured * 1.35


def test_a_cpu_computes_few_sequences_of_a_large_model() -> None:
    """As many as an oracle would, whatever is asked for; a GPU computes what it is asked to."""
    assert estimate_footprint(gpt1(), 16, "cpu") == estimate_footprint(gpt1(), 1, "cpu")
    assert estimate_footprint(tiny_manifest(), 4, "cpu") != estimate_footprint(tiny_manifest(), 1, "cpu")


def test_the_estimate_is_near_what_a_gpu_had() -> None:
    """117 M weights, 64 sequences at once: 17.29 GiB at most were allocated on an H100, before CUDA's own."""
    estimated = estimate_footprint(gpt1(), 64, "cuda").device - GPU_PROGRAM
    assert 17.29 * 2**30 / 1.2 < estimated < 17.29 * 2**30 * 1.2


def test_the_estimate_of_a_long_context_is_near_what_was_measured() -> None:
    """gpt2 124m on a CPU in bf16: 1,024 tokens grew it by 0.49 GB; no probabilities of attention are kept."""
    gpt2 = manifest_from_preset(
        "gpt2", size="124m", name="g", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=50257
    )
    estimated = _activation_bytes(gpt2, "cpu", checkpointing=False)
    assert 0.49e9 / 1.2 < estimated < 2 * 0.49e9 * 1.2, "counted as fp32, as not all CPUs have bf16"


def test_other_devices_take_main_memory() -> None:
    """A program each, and what it shares with the trainer; the first device takes as much as alone."""
    one, three = (estimate_footprint(gpt1(), 1, "cuda", devices=count) for count in (1, 3))
    assert three.node - one.node == 2 * (PROGRAM + 4 * 116_365_056)
    assert three.device == one.device


def test_what_gives_way_makes_room_on_smaller_cards() -> None:
    """Moments, and then activations; moments go to the main memory."""
    plain, offloaded, both = (estimate_footprint(gpt1(), 16, "cuda", way) for way in Saving.ways(None, None))
    moments = 8 * 116_365_056
    assert plain.device - offloaded.device == moments
    assert offloaded.node - plain.node == moments
    assert both.device < offloaded.device - 1e9
    assert both.node == offloaded.node


def test_a_billion_weights_train_on_24_gigabytes() -> None:
    """One sequence at once, with 16 bytes per weight; on 12 GB where those give way, and activations."""
    llama = manifest_from_preset(
        "llama", size="1b", name="g", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=32000
    )
    plain, _, both = (estimate_footprint(llama, None, "cuda", way) for way in Saving.ways(None, None))
    assert 16e9 < plain.device < 24e9
    assert both.device < 12e9


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
