"""Sampling has the order and meaning of transformers' logits processors."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
import transformers

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.generation.sampling import Sampling, keep_top_k, keep_top_p, penalise_repetition

BEFORE = [3, 1, 3, 7]


def scores(seed: int = 0, size: int = 50) -> torch.Tensor:
    return 3 * torch.randn(size, generator=torch.Generator().manual_seed(seed))


def processed(processor: Any, logits: torch.Tensor) -> torch.Tensor:
    """What a processor of transformers makes of one row."""
    result: torch.Tensor = processor(torch.tensor([BEFORE]), logits[None].clone())[0]
    return result


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_the_repetition_penalty_is_that_of_transformers(penalty: float, seed: int) -> None:
    """Scores of tokens that were there shrink towards less likely, positive and negative ones."""
    expected = processed(transformers.RepetitionPenaltyLogitsProcessor(penalty), scores(seed))
    assert torch.equal(penalise_repetition(scores(seed), BEFORE, penalty), expected)


def test_tokens_without_a_score_are_not_penalised() -> None:
    """A prompt may have them, where W_e has more rows than there are tokens to write."""
    assert torch.equal(
        penalise_repetition(scores(), [*BEFORE, 50, 63], 2), penalise_repetition(scores(), BEFORE, 2)
    )
    assert torch.equal(penalise_repetition(scores(), [50], 2), scores())


@pytest.mark.parametrize("k", [1, 5, 50, 1000])
def test_top_k_is_that_of_transformers(k: int) -> None:
    """The k best stay, and those that are as good as the k-th; more than all are all."""
    logits = scores().round()  # with equal ones
    assert torch.equal(keep_top_k(logits, k), processed(transformers.TopKLogitsWarper(k), logits))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("p", [1e-9, 0.3, 0.9, 0.999])
def test_top_p_is_that_of_transformers(p: float, seed: int) -> None:
    """The fewest tokens that together have the probability stay, at least one."""
    expected = processed(transformers.TopPLogitsWarper(p), scores(seed))
    assert torch.equal(keep_top_p(scores(seed), p), expected)
    assert torch.isfinite(expected).any()


def test_all_together_draw_from_transformers_distribution() -> None:
    """Penalty, temperature, top-k and top-p in this order: tokens are as frequent as they must be."""
    processors = transformers.LogitsProcessorList(
        [
            transformers.RepetitionPenaltyLogitsProcessor(1.5),
            transformers.TemperatureLogitsWarper(0.7),
            transformers.TopKLogitsWarper(6),
            transformers.TopPLogitsWarper(0.9),
        ]
    )
    logits = scores(size=12)
    expected = processed(processors, logits).softmax(0)
    sampling = Sampling(temperature=0.7, top_k=6, top_p=0.9, repetition_penalty=1.5)
    generator = torch.Generator().manual_seed(1)
    drawn = collections.Counter(sampling.choose(logits, BEFORE, generator) for _ in range(4000))
    assert set(drawn) == set(expected.nonzero().flatten().tolist())
    for token, count in drawn.items():
        assert count / 4000 == pytest.approx(expected[token].item(), abs=0.03)


def test_temperature_0_takes_the_likeliest() -> None:
    """It draws nothing, though a penalty still counts."""
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    logits = torch.tensor([0.0, 4.0, 3.0, -1.0])
    assert Sampling(temperature=0).choose(logits, [1], generator) == 1
    assert Sampling(temperature=0, repetition_penalty=2).choose(logits, [1], generator) == 2
    assert torch.equal(before, generator.get_state())


@pytest.mark.parametrize("temperature", [1e-30, 1e-38, 1e-45, 1e-300, 5e-324])
@pytest.mark.parametrize("shift", [0.0, -10.0, -4.0])
def test_a_tiny_temperature_takes_the_likeliest(temperature: float, shift: float) -> None:
    """Where scores divided by it are beyond fp32, too: above, below, and 0 by 0."""
    logits = torch.tensor([0.0, 4.0, 3.0, -1.0]) + shift
    for sampling in (
        Sampling(temperature=temperature),
        Sampling(temperature=temperature, top_k=2, top_p=0.9),
    ):
        assert sampling.choose(logits, [1], torch.Generator().manual_seed(1)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": -1},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": float("nan")},
        {"seed": -1},
        {"seed": 1 << 63},
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any]) -> None:
    """The error names the value and what is possible, and says which setting it is about."""
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=f"{name} = {value} is impossible; use ") as caught:
        Sampling(**wrong)
    assert caught.value.settings == (name,)
