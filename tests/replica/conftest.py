import pytest
import torch
from torch import Tensor

from dupt_swarm.replica.state import ReplicaState

LAYOUT = ((7, 5), (5,), (3, 2, 2))


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
