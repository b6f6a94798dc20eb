"""How common a model finds each token is seen in what it writes by itself."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from dupt_swarm.learning.inner import unigrams as module
from dupt_swarm.learning.inner.unigrams import EVEN, Unigrams, _drawn, unigrams_of
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model, Objective

SIZE = 300
CONFIG = Model(vocabulary_size=SIZE, context_length=8, layers=1, heads=1, width=16, hidden_width=16)


def writes(probabilities: Tensor) -> GPT:
    """A decoder that predicts ``probabilities`` ``[V]`` whatever it has read."""
    decoder = GPT(CONFIG)
    decoder.init_weights(0)
    with torch.no_grad():
        for name, parameter in decoder.ln_f.named_parameters():
            parameter.copy_(torch.eye(16)[0] if name == "bias" else torch.zeros(16))
        decoder.wte.weight[:, 0] = probabilities.log()
    return decoder


def test_are_those_of_a_model_that_reads_nothing() -> None:
    """Where each token is drawn from one distribution, it is found, but for the even part of it."""
    probabilities = torch.rand(SIZE, generator=torch.Generator().manual_seed(0)).softmax(0)
    found = Unigrams(writes(probabilities)).measure()
    torch.testing.assert_close(found, (1 - EVEN) * probabilities + EVEN / SIZE)


class Bigrams(nn.Module):
    """Predicts by the last token alone: row i of ``[V, V]`` is what follows on i."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.config = CONFIG
        self.wte = nn.Embedding.from_pretrained(table.log())
        self.lm_head = None
        self.output_weight = nn.Parameter(torch.eye(len(table)))

    def hidden(self, tokens: Tensor, cache: Cache) -> Tensor:
        """[B, T] to [B, T, V]."""
        rows: Tensor = self.wte(tokens)
        cache.layers[0].length += tokens.size(1)
        return rows


@pytest.mark.parametrize("length", [2, 3])
def test_a_context_may_be_shorter_than_what_is_written(length: int) -> None:
    """The model goes on with the last tokens of it."""
    decoder = GPT(CONFIG.model_copy(update={"context_length": length}))
    decoder.init_weights(0)
    torch.testing.assert_close(Unigrams(decoder).measure().sum(), torch.tensor(1.0))


def test_follow_what_the_model_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginnings from all over the vocabulary are soon forgotten: what counts is the text that follows."""
    monkeypatch.setattr(module, "SEQUENCES", 512)
    common = torch.tensor([16.0, 8, 4, 2, 1, 1, 1, 1])
    table = 0.7 * common / common.sum() + 0.3 * torch.eye(8)  # each likes to repeat itself
    stationary = torch.linalg.matrix_power(table, 100)[0]
    found = Unigrams(Bigrams(table)).measure()  # type: ignore[arg-type]
    torch.testing.assert_close(found, (1 - EVEN) * stationary + EVEN / 8, atol=0.01, rtol=0.05)


def test_begin_with_what_is_known_to_be_common() -> None:
    """A model that has never read some tokens says of them nothing sensible: it is not asked often."""
    table = torch.full((8, 8), 1 / 8)  # what follows on a token that it does not know
    table[:2] = torch.tensor([0.6, 0.4, 0, 0, 0, 0, 0, 0]) + 1e-9
    unigrams = Unigrams(Bigrams(table))  # type: ignore[arg-type]
    first = unigrams.measure()
    known = first
    for _ in range(4):
        known = unigrams.measure(known)
    torch.testing.assert_close(known[:2], torch.tensor([0.6, 0.4]), atol=0.02, rtol=0)
    assert first[:2].sum() < known[:2].sum()


def test_are_positive_and_add_up_to_one() -> None:
    """However sure the model is, no token is impossible."""
    logits = torch.zeros(SIZE)
    logits[7] = 1000.0
    decoder = writes(logits.softmax(0).clamp(min=1e-38))
    found = Unigrams(decoder).measure()
    assert found.min() > 0
    torch.testing.assert_close(found.sum(), torch.tensor(1.0))
    assert found.argmax() == 7


def test_measuring_changes_nothing() -> None:
    """Neither the mode of the model, nor random numbers, nor gradients; and again it finds the same."""
    decoder = GPT(CONFIG.model_copy(update={"dropout": 0.5}))
    decoder.init_weights(1)
    decoder.train()
    random = torch.get_rng_state()
    first, second = Unigrams(decoder).measure(), Unigrams(decoder).measure()
    assert torch.equal(first, second)
    assert decoder.training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in decoder.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_are_those_of_inputs_and_outputs(tied: bool) -> None:
    """One matrix, or two where the output has its own."""
    decoder = GPT(CONFIG.model_copy(update={"tie_embeddings": tied}))
    expected = [decoder.wte.weight] if tied else [decoder.wte.weight, decoder.output_weight]
    assert list(map(id, Unigrams(decoder).embeddings)) == list(map(id, expected))


def test_a_model_of_a_task_has_none() -> None:
    """Its embeddings learn a task besides language."""
    assert unigrams_of(GPT(CONFIG)) is not None
    task = Objective(kind="classification", labels=["a", "b"])
    assert unigrams_of(TaskModel(CONFIG, task)) is None


def test_draws_fill_the_unit_interval_evenly() -> None:
    """The places at which sequences draw: each eighth of (0, 1) has about an eighth, jointly too."""
    numbers = torch.arange(1, module.SEQUENCES + 1)
    draws = [torch.frac(numbers * step) for step in module.IRRATIONAL]
    for places in draws:
        assert torch.histc(places, 8, 0, 1).sub(module.SEQUENCES / 8).abs().max() <= 4
    for one, other in itertools.combinations(draws, 2):
        quarters = torch.bincount((one * 4).long() * 4 + (other * 4).long(), minlength=16)
        assert quarters.sub(module.SEQUENCES / 16).abs().max() <= 5


def test_a_distribution_that_was_rounded_has_a_last_token() -> None:
    """Its sum may be a little less than the place that is drawn."""
    assert _drawn(torch.tensor([[0.3, 0.999]]), torch.tensor([[0.9999]])).tolist() == [[1]]
