"""Embeddings move at a rate that follows from how common the model finds their tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

from dupt_swarm.learning.inner import build_inner, embedding_adamw, move_moments, renew_scales
from dupt_swarm.learning.inner.embedding_adamw import LEAST_STEPS, EmbeddingAdamW
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Inner, Model

V, C = 12, 4
RATE, BETAS, DECAY = 0.01, (0.8, 0.9), 0.1
INNER = Inner(
    optimizer="adamw",
    learning_rate=RATE,
    beta1=BETAS[0],
    beta2=BETAS[1],
    weight_decay=DECAY,
    embedding_scale="model",
)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Said(Unigrams):
    """Frequencies that a test says, each time others, for an embedding that it has made."""

    def __init__(self, *said: Tensor) -> None:
        self.embeddings = [nn.Parameter(random(V, C))]
        self._said, self.asked = said, 0

    def measure(self, known: Tensor | None = None) -> Tensor:
        assert (known is None) == (self.asked == 0)
        self.asked += 1
        return self._said[min(self.asked, len(self._said)) - 1]


def step(optimizer: optim.Optimizer, embedding: nn.Parameter, gradient: Tensor) -> None:
    embedding.grad = gradient.clone()
    optimizer.step()


def by_hand(matrix: np.ndarray, gradients: list[np.ndarray], frequencies: np.ndarray) -> np.ndarray:
    """The matrix after an update with each of the gradients, in double precision."""
    mean, rows, columns = np.zeros_like(matrix), np.zeros(V), np.zeros(C)
    for number, gradient in enumerate(gradients, 1):
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
        rows = BETAS[1] * rows + (1 - BETAS[1]) * (gradient**2).sum(1)
        columns = BETAS[1] * columns + (1 - BETAS[1]) * (gradient**2).sum(0)
        shares = np.maximum(frequencies, rows / rows.sum() / 16)
        scale = np.sqrt(shares[:, None]) * (np.sqrt(columns / (1 - BETAS[1] ** number)) + 1e-8)
        matrix = matrix * (1 - RATE * DECAY) - RATE * mean / (1 - BETAS[0] ** number) / scale
    return matrix


@pytest.mark.parametrize("at_once", [1, 5 * C, V * C])
def test_updates_are_those_computed_by_hand(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean, second moments of columns, shares of rows and decay agree with double precision."""
    monkeypatch.setitem(embedding_adamw.VALUES_AT_ONCE, "cpu", at_once)
    frequencies = (3 * random(V, seed=9)).softmax(0)
    assert 0 < (frequencies < 1 / V / 16).sum() < V  # some rows have their own share, others the model's
    said = Said(frequencies)
    gradients = [random(V, C, seed=seed) for seed in (1, 2, 3)]
    optimizer = EmbeddingAdamW(said, INNER)
    for gradient in gradients:
        step(optimizer, said.embeddings[0], gradient)
    expected = by_hand(
        random(V, C).double().numpy(),
        [gradient.double().numpy() for gradient in gradients],
        frequencies.double().numpy(),
    )
    np.testing.assert_allclose(said.embeddings[0].detach().numpy(), expected, rtol=1e-5, atol=1e-7)


def test_is_adamw_where_all_tokens_are_alike() -> None:
    """With even frequencies, and gradients of one size in each column, nothing differs from AdamW."""
    said = Said(torch.full((V,), 1 / V))
    plain = nn.Parameter(said.embeddings[0].detach().clone())
    adamw = optim.AdamW([plain], lr=RATE, betas=BETAS, weight_decay=DECAY)
    optimizer = EmbeddingAdamW(said, INNER)
    sizes = torch.tensor([0.1, 1.0, 3.0, 20.0])
    for seed in (1, 2, 3, 4):
        gradient = random(V, C, seed=seed).sign() * sizes * seed
        step(optimizer, said.embeddings[0], gradient)
        step(adamw, plain, gradient)
    torch.testing.assert_close(said.embeddings[0], plain)


def test_a_model_that_is_wrong_makes_no_step_much_longer() -> None:
    """A common token that the model never writes moves four times as far as by its own gradients."""
    frequencies = torch.full((V,), 1 / (V - 1))
    frequencies[0] = 1e-9
    said, honest = Said(frequencies), Said(torch.full((V,), 1 / V))
    moved = []
    for one in (said, honest):
        optimizer = EmbeddingAdamW(one, INNER.model_copy(update={"weight_decay": 0.0}))
        before = one.embeddings[0].detach().clone()
        step(optimizer, one.embeddings[0], torch.ones(V, C))
        moved.append((one.embeddings[0] - before).detach())
    torch.testing.assert_close(moved[0][0], 4 * moved[1][0])


def test_a_rounds_average_renews_frequencies_but_not_at_every_step() -> None:
    """They are measured before the first step, and again after a round, at least some steps later."""
    even, other = torch.full((V,), 1 / V), random(V, seed=9).softmax(0)
    said = Said(even, other)
    optimizer = EmbeddingAdamW(said, INNER)
    renew_scales(optimizer)
    assert said.asked == 0  # nothing is known yet that could be old
    for number in range(LEAST_STEPS):
        step(optimizer, said.embeddings[0], random(V, C, seed=number))
        if number < LEAST_STEPS - 1:
            renew_scales(optimizer)
    assert said.asked == 1
    for _ in range(2):
        renew_scales(optimizer)
        assert said.asked == 2
    assert torch.equal(optimizer.state[said.embeddings[0]]["frequencies"], other)


def test_gradients_of_zero_move_nothing() -> None:
    """There are shares of rows where no row has anything yet."""
    said = Said(torch.full((V,), 1 / V))
    before = said.embeddings[0].detach().clone()
    step(EmbeddingAdamW(said, INNER), said.embeddings[0], torch.zeros(V, C))
    torch.testing.assert_close(said.embeddings[0].detach(), before * (1 - RATE * DECAY))


CONFIG = Model(vocabulary_size=300, context_length=8, layers=1, heads=1, width=16, hidden_width=16)


def of_gpt(model: GPT, **changes: Any) -> optim.Optimizer:
    inner = INNER.model_copy(update=changes)
    return build_inner(model.parameters(), inner, block_matrices(model), Unigrams(model))


def train(model: GPT, optimizer: optim.Optimizer, seeds: range) -> Tensor:
    for seed in seeds:
        tokens = torch.randint(0, 300, (4, 9), generator=torch.Generator().manual_seed(seed))
        optimizer.zero_grad()
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("tied", [True, False])
def test_goes_on_from_what_was_saved(kind: str, tied: bool, tmp_path: Path) -> None:
    """As a checkpoint has it; the first steps are those of an optimizer that never stopped, bit for bit."""
    config = CONFIG.model_copy(update={"tie_embeddings": tied})
    models = [GPT(config) for _ in range(2)]
    for model in models:
        model.init_weights(0)
    first, second = (of_gpt(model, optimizer=kind) for model in models)
    train(models[0], first, range(3))
    write_tree(tmp_path / "inner", first.state_dict())
    models[1].load_state_dict(models[0].state_dict())
    second.load_state_dict(read_tree(tmp_path / "inner"))
    assert torch.equal(train(models[0], first, range(3, 6)), train(models[1], second, range(3, 6)))


def test_moments_move_with_the_model() -> None:
    """What an optimizer remembers of embeddings lies where they do (here: nowhere, which has no values)."""
    model = GPT(CONFIG)
    model.init_weights(0)
    optimizer = of_gpt(model)
    train(model, optimizer, range(1))
    move_moments(optimizer, torch.device("meta"))
    state = optimizer.parts[0].state[model.wte.weight]  # type: ignore[attr-defined]
    assert {name for name, value in state.items() if isinstance(value, Tensor)} == {
        *("mean", "rows", "columns", "frequencies")
    }
    assert all(value.is_meta for value in state.values() if isinstance(value, Tensor))


def test_remembers_less_than_adamw() -> None:
    """One number for each weight of an embedding in place of two."""
    model = GPT(CONFIG)
    model.init_weights(0)
    optimizer = of_gpt(model)
    train(model, optimizer, range(1))
    state = optimizer.parts[0].state[model.wte.weight]  # type: ignore[attr-defined]
    assert sum(value.numel() for value in state.values() if isinstance(value, Tensor)) < 300 * 19


def test_all_other_parameters_are_the_inner_optimizers() -> None:
    """Each parameter is in one group."""
    model = GPT(CONFIG)
    optimizer = of_gpt(model, optimizer="muon")
    grouped = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(map(id, model.parameters()))


COMMON, RARE = slice(0, 100), slice(100, 300)


@pytest.mark.parametrize("tied", [True, False])
def test_a_rare_token_that_a_corpus_lacks_hardly_moves(tied: bool) -> None:
    """With AdamW it is pushed down several times as fast as common tokens move."""
    start = GPT(CONFIG.model_copy(update={"tie_embeddings": tied}))
    start.init_weights(0)
    learn(start, of_gpt(start, embedding_scale="own", learning_rate=3e-3), rare=0.05, steps=150)
    moved = {}
    for scale in ("own", "model"):
        model = GPT(start.config)
        model.load_state_dict(start.state_dict())
        learn(model, of_gpt(model, embedding_scale=scale, learning_rate=3e-3), rare=0.0, steps=20)
        way = (model.output_weight - start.output_weight).detach().norm(dim=1)
        moved[scale] = float(way[RARE].mean() / way[COMMON].mean())
    assert moved["own"] > 3
    assert moved["model"] < 0.7


def learn(model: GPT, optimizer: optim.Optimizer, rare: float, steps: int) -> None:
    """Steps on text of the common tokens, and of the rare ones that often."""
    generator = torch.Generator().manual_seed(steps)
    odds = torch.zeros(300)
    odds[COMMON], odds[RARE] = (1 - rare) / 100, rare / 200
    for _ in range(steps):
        tokens = torch.multinomial(odds, 16 * 9, replacement=True, generator=generator).view(16, 9)
        optimizer.zero_grad()
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
