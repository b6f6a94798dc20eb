"""A small model of each preset, and a batch for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dupt_swarm.learning.batches import Batch
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.presets import load_preset

IDS = torch.arange(3 * 16).view(3, 16) % 64
LENGTHS, PLACES = torch.tensor([16, 9, 12]), torch.tensor([[1, 3], [2, 5], [4, 0]])
BATCHES: dict[ModelKind, Batch] = {
    "decoder": (IDS, IDS),
    "encoder": (IDS, PLACES, IDS.gather(1, PLACES), LENGTHS, torch.tensor([0, 1, 1])),
    "encoder-decoder": (IDS, LENGTHS, IDS, IDS, LENGTHS, torch.ones(3)),
}


def small_model(preset: str, **changes: Any) -> tuple[nn.Module, Batch]:
    """Of the preset's kind, with ``changes`` of its table; the loss of the batch is ``model(*batch)``."""
    sizes = {"vocabulary_size": 300, "context_length": 16, "layers": 1, "heads": 2, "width": 16}
    tables = load_preset(preset)
    tables["model"] |= sizes | {"hidden_width": 32} | changes
    named = {"sha256": "0" * 64, "vocabulary_size": 300}
    manifest = Manifest.model_validate({"name": "a", "seed": 0, "tokenizer": named, **tables})
    return build_model(manifest), BATCHES[manifest.model.kind]
