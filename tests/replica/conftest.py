from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.presets import load_preset
from dupt_swarm.replica.state import ReplicaState

LAYOUT = ((7, 5), (5,), (3, 2, 2))


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., Manifest]:
    """The tiny preset with some keys changed: ``make_manifest(outer={"momentum": 0.0})``."""

    def make(**changes: dict[str, Any] | str) -> Manifest:
        tables = load_preset("tiny")
        size = tables["model"]["vocabulary_size"]
        tables |= {"name": "test", "seed": 1, "tokenizer": {"sha256": "0" * 64, "vocabulary_size": size}}
        for key, value in changes.items():
            tables[key] = tables.get(key, {}) | value if isinstance(value, dict) else value
        return Manifest.model_validate(tables)

    return make


@pytest.fixture
def parameters() -> list[Tensor]:
    """Random parameters: two matrices and a bias."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in LAYOUT]


@pytest.fixture
def state(parameters: list[Tensor]) -> ReplicaState:
    """The state after 3 rounds of a swarm with momentum."""
    first = ReplicaState.initial(parameters, ["velocity"])
    velocity = torch.linspace(-1, 1, first.anchor.numel())
    return ReplicaState(3, 4711, first.layout, first.anchor, {"velocity": velocity})
