"""Evaluation counts every token and byte once and leaves no trace."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning import device as device_module
from dupt_swarm.learning.evaluation import count_predicted, evaluate
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model

CPU = torch.device("cpu")
BYTES = np.arange(300) % 7


class Uniform(nn.Module):
    """Gives every one of 256 tokens the same probability."""

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        assert inputs.shape == targets.shape
        return torch.tensor(math.log(256))


def tiny(dropout: float = 0.0) -> GPT:
    shape = Model(
        vocabulary_size=300, context_length=8, layers=1, heads=2, width=16, hidden_width=32, dropout=dropout
    )
    return GPT(shape)


def batches_of(*rows: int) -> list[tuple[Tensor, Tensor]]:
    tokens = torch.randint(300, (sum(rows), 9), generator=torch.Generator().manual_seed(1))
    return [(part[:, :-1], part[:, 1:]) for part in torch.split(tokens, list(rows))]


def test_every_token_counts_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unequal batches give the loss of one batch of all, with the tokens and bytes counted exactly."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    model = tiny()
    ((inputs, targets),) = batches_of(9)
    result = evaluate(model, batches_of(1, 6, 2), BYTES, CPU)
    assert result.loss_nats == pytest.approx(model(inputs, targets).item(), abs=1e-6)
    assert (72, int(BYTES[targets].sum())) == (result.tokens, result.bytes)
    assert result.bits_per_byte == pytest.approx(result.loss_nats * 72 / math.log(2) / result.bytes)


def test_a_model_that_knows_nothing_needs_eight_bits_for_a_byte() -> None:
    """With one byte a token and 256 equal chances, a byte costs 8 bits."""
    result = evaluate(Uniform(), batches_of(2, 1), torch.ones(300, dtype=torch.int64), CPU)
    assert result.bits_per_byte == pytest.approx(8)


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_no_trace(training: bool) -> None:
    """Dropout is off, and afterwards mode, random numbers and gradients are what they were."""
    model = tiny(dropout=0.5).train(training)
    state = torch.get_rng_state()
    first = evaluate(model, batches_of(2), BYTES, CPU)
    assert first == evaluate(model, batches_of(2), BYTES, CPU)
    assert training == model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_failure_restores_the_mode() -> None:
    """A model whose evaluation fails is in training mode as before."""
    model = tiny()
    with pytest.raises(IndexError):
        evaluate(model, [(torch.tensor([[999]]), torch.tensor([[1]]))], BYTES, CPU)
    assert model.training


@torch.no_grad()
def test_figures_on_the_device_are_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Apple GPU has no fp64."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: False)
    h, logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), nn.Linear(4, 9, bias=False)
    nats, right, count = found = count_predicted(h, torch.arange(5), logits, 9)
    assert found.dtype == torch.float32
    predicted = logits(h).log_softmax(1)
    assert nats == pytest.approx(-float(predicted.diagonal().sum()))
    assert (right, count) == (int((predicted.argmax(1) == torch.arange(5)).sum()), 5)


def test_no_text_is_an_error() -> None:
    """Without any batch there is no loss, and the error says what is missing."""
    with pytest.raises(CorpusError, match="no held-out text"):
        evaluate(tiny(), [], BYTES, CPU)
