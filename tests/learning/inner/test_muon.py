"""Muon's update is the one that its papers give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dupt_swarm.learning.inner import build_inner, muon
from dupt_swarm.learning.inner.muon import orthogonal
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.manifest import Inner

RATE, MOMENTUM, DECAY = 0.01, 0.9, 0.1
INNER = Inner(optimizer="muon", learning_rate=RATE, momentum=MOMENTUM, weight_decay=DECAY)
BF16 = 0.05  # how far products in bf16 may be off, which five steps add up


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def weights(layer: nn.Module) -> list[nn.Parameter]:
    """The matrix of a linear layer, in a list."""
    return [parameter for parameter in layer.parameters() if parameter.ndim == 2]


def by_hand(matrix: np.ndarray, gradients: list[np.ndarray]) -> np.ndarray:
    """The matrix after an update with each of the gradients, in double precision."""
    mean = np.zeros_like(matrix)
    for gradient in gradients:
        mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
        x = MOMENTUM * mean + (1 - MOMENTUM) * gradient
        x = x / np.sqrt((x * x).sum())
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x - 4.7750 * square @ x + 2.0315 * square @ square @ x
        matrix = matrix * (1 - RATE * DECAY) - RATE * 0.2 * np.sqrt(max(matrix.shape)) * x
    return matrix


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5), (64, 16)])
def test_updates_are_those_computed_by_hand(shape: tuple[int, int]) -> None:
    """Momentum, orthogonal step, scale and decay agree with a computation in double precision."""
    matrix = nn.Parameter(random(*shape))
    gradients = [random(*shape, seed=seed) for seed in (1, 2, 3)]
    optimizer = build_inner([matrix], INNER, [matrix])
    for gradient in gradients:
        matrix.grad = gradient.clone()
        optimizer.step()
    expected = by_hand(random(*shape).double().numpy(), [gradient.double().numpy() for gradient in gradients])
    off = np.abs(matrix.detach().double().numpy() - expected).max()
    assert off <= 3 * RATE * 0.2 * np.sqrt(max(shape)) * BF16


@pytest.mark.parametrize("shape", [(48, 192), (192, 48), (2, 300)])
def test_singular_values_become_equal(shape: tuple[int, int]) -> None:
    """Whatever their size, all singular values of a step lie around 1, and its singular vectors stay."""
    gradient = random(*shape) * 1e-4
    [step] = orthogonal(gradient[None])
    assert step.dtype == torch.float32
    values = torch.linalg.svdvals(step)
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    rotated = left.T @ step @ right.T
    assert float((rotated - rotated.diag().diag()).abs().max()) < 0.05


@pytest.mark.parametrize("values", [1, 100, 1 << 20])
def test_matrices_of_one_shape_are_updated_together(monkeypatch: pytest.MonkeyPatch, values: int) -> None:
    """However many at once, and whatever other shapes are among them: the same as one by one."""
    shapes = [(6, 4), (4, 6), (6, 4), (5, 5), (6, 4)]
    updated = []
    for at_once in (0, values):
        monkeypatch.setattr(muon, "VALUES_AT_ONCE", {"cpu": at_once})
        matrices = [nn.Parameter(random(*shape, seed=seed)) for seed, shape in enumerate(shapes)]
        optimizer = build_inner(matrices, INNER, matrices)
        for step in (1, 2):
            for seed, matrix in enumerate(matrices):
                matrix.grad = random(*matrix.shape, seed=10 * step + seed) if seed != 3 else None
            optimizer.step()
        updated.append(matrices)
    for alone, together in zip(*updated, strict=True):
        torch.testing.assert_close(together, alone, rtol=0, atol=RATE * BF16)
    assert torch.equal(updated[1][3], random(5, 5, seed=3)), "it had no gradient"


def test_a_step_without_gradient_is_decay() -> None:
    """A zero gradient gives a zero step: only the weights' decay is left; without a gradient nothing is."""
    matrix, still = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(3, 2))
    optimizer = build_inner([matrix, still], INNER, [matrix, still])
    matrix.grad = torch.zeros(3, 2)
    optimizer.step()
    torch.testing.assert_close(matrix.detach(), torch.full((3, 2), 1 - RATE * DECAY))
    assert torch.equal(still, torch.ones(3, 2))


def test_everything_else_is_adamws() -> None:
    """What is not named as a block's matrix is updated as by AdamW, bit for bit."""
    updated: list[list[Tensor]] = []
    for optimizer in ("muon", "adamw"):
        layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
        inner = INNER.model_copy(update={"optimizer": optimizer})
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        chosen = build_inner(parameters, inner, weights(layers[1]))
        for seed, parameter in enumerate(parameters):
            parameter.data = random(*parameter.shape, seed=seed)
            parameter.grad = random(*parameter.shape, seed=seed + 9)
        chosen.step()
        updated.append([parameter.detach() for parameter in parameters])
    muon, adamw = updated
    assert [torch.equal(a, b) for a, b in zip(muon, adamw, strict=True)] == [True, True, False, True]


def test_one_rate_for_all() -> None:
    """A rate written to all groups stops every parameter when it is 0."""
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    optimizer = build_inner(layers.parameters(), INNER, weights(layers[1]))
    before = [parameter.detach().clone() for parameter in layers.parameters()]
    for parameter in layers.parameters():
        parameter.grad = torch.ones_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, layers.parameters(), strict=True))


def test_it_goes_on_from_a_file_bit_for_bit(tmp_path: Path) -> None:
    """Saved and read back, it takes the same next updates as one that never stopped, at a new rate too."""
    models = [nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)) for _ in range(2)]
    one, other = (build_inner(model.parameters(), INNER, weights(model[1])) for model in models)

    def update(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = RATE / seed
        for parameter in model.parameters():
            parameter.grad = random(*parameter.shape, seed=seed)
        optimizer.step()

    for seed in (1, 2):
        update(models[0], one, seed)
    write_tree(tmp_path / "tree", one.state_dict())
    other.load_state_dict(read_tree(tmp_path / "tree"))
    models[1].load_state_dict(models[0].state_dict())
    for seed in (3, 4):
        update(models[0], one, seed)
        update(models[1], other, seed)
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
