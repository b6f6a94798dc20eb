"""Blocks that compute again what they did not keep: the same gradients from less memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
from dupt_swarm.learning.batches import Batch
from dupt_swarm.presets import PRESETS
from tests.support.small_models import small_model


def learn(model: nn.Module, batch: Batch) -> tuple[list[Tensor], int]:
    """The loss and the gradients, and the bytes that were kept for the latter."""
    kept = 0

    def keep(value: Tensor) -> Tensor:
        nonlocal kept
        kept += value.nbytes
        return value

    torch.manual_seed(1)
    model.zero_grad()
    with saved_tensors_hooks(keep, lambda value: value):
        loss = model(*batch)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)], kept


@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_are_the_same(preset: str) -> None:
    """Bit for bit, with dropout too; and for models of every kind much less is kept."""
    model, batch = small_model(preset, layers=3, dropout=0.1)
    names = list(model.state_dict())
    expected, much = learn(model, batch)
    checkpoint_activations(model)
    found, little = learn(model, batch)
    assert all(map(torch.equal, found, expected))
    assert len(found) == len(expected) > 10
    assert little < 0.5 * much
    assert list(model.state_dict()) == names
    checkpoint_activations(model, wanted=False)
    assert learn(model, batch)[1] == much
