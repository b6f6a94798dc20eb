"""Blocks that compute again what they did not keep: the same gradients from less memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
from dupt_swarm.learning.batches import Batch
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.presets import PRESETS, load_preset

IDS = torch.arange(3 * 16).view(3, 16) % 64
LENGTHS, PLACES = torch.tensor([16, 9, 12]), torch.tensor([[1, 3], [2, 5], [4, 0]])
BATCHES: dict[ModelKind, Batch] = {
    "decoder": (IDS, IDS),
    "encoder": (IDS, PLACES, IDS.gather(1, PLACES), LENGTHS, torch.tensor([0, 1, 1])),
    "encoder-decoder": (IDS, LENGTHS, IDS, IDS, LENGTHS, torch.ones(3)),
}


def small(preset: str) -> tuple[nn.Module, Batch]:
    """A model of the preset's kind, with dropout, and a batch for it."""
    sizes = {"vocabulary_size": 300, "context_length": 16, "layers": 3, "heads": 2, "width": 16}
    tables = load_preset(preset)
    tables["model"] |= sizes | {"hidden_width": 32, "dropout": 0.1}
    named = {"sha256": "0" * 64, "vocabulary_size": 300}
    manifest = Manifest.model_validate({"name": "a", "seed": 0, "tokenizer": named, **tables})
    return build_model(manifest), BATCHES[manifest.model.kind]


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
    model, batch = small(preset)
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
