"""How much is done between two looks."""

import pytest
import torch

from dupt_swarm.learning.interruptible import (
    Abandoned,
    held_out_sequences,
    parameter_count,
    sequences_at_once,
    watched,
)
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.presets import PRESETS, load_preset, manifest_from_preset

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("parameters", "context_length", "at_once", "held_out"),
    [
        (4_000_000, 128, 16, 64),  # preset tiny: as asked for
        (117_000_000, 512, 1, 18),  # preset gpt1: an inner step in 64 pieces
        (1_500_000_000, 1024, 1, 1),  # never less than one
    ],
)
def test_a_cpu_gets_little_of_a_large_model_at_once(
    parameters: int, context_length: int, at_once: int, held_out: int
) -> None:
    """So that no batch and no evaluation takes long; a GPU gets what was asked for."""
    assert at_once == sequences_at_once(16, parameters, context_length, CPU)
    assert held_out == held_out_sequences(64, parameters, context_length, CPU)
    assert sequences_at_once(16, parameters, context_length, CUDA) == 16
    assert held_out_sequences(64, parameters, context_length, CUDA) == 64


def test_each_batch_is_preceded_by_a_look() -> None:
    """It is told how many of how many are done, and what it raises ends the batches."""
    batches = [(torch.zeros(1), torch.zeros(1))] * 3
    seen: list[tuple[int, int]] = []

    def look(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 1:
            raise Abandoned

    with pytest.raises(Abandoned):
        list(watched(batches, 3, look))
    assert seen == [(0, 3), (1, 3)]


def test_weights_are_counted_once() -> None:
    """The embedding, which is the output's matrix too, counts once."""
    assert "tiny" in PRESETS
    size = load_preset("tiny")["model"]["vocabulary_size"]
    manifest = manifest_from_preset(
        "tiny", name="count", seed=0, tokenizer_sha256="0" * 64, vocabulary_size=size
    )
    block = 256 + (2 * 256 + 2 * 64) * 256 + 3 * 256 * 832  # norm; query, key, value, output; SwiGLU
    assert parameter_count(GPT(manifest.model)) == 4096 * 256 + 4 * block + 256 == 4_261_120
