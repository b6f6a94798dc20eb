"""Inner optimizers follow the manifest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.inner import build_inner
from dupt_swarm.manifest import Inner


def updated(inner: Inner, gradient: float) -> dict[str, torch.Tensor]:
    """The parameters of a linear layer of ones after one update with all gradients alike."""
    layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.full_like(parameter, gradient)
    build_inner(layer.parameters(), inner).step()
    return dict(layer.named_parameters())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_weights_decay_and_biases_do_not(optimizer: Any) -> None:
    """Without a gradient, an update shrinks matrices by learning rate × decay and leaves biases alone."""
    inner = Inner(optimizer=optimizer, learning_rate=0.1, weight_decay=0.5)
    after = updated(inner, gradient=0.0)
    torch.testing.assert_close(after["weight"], torch.full((2, 2), 1 - 0.1 * 0.5))
    torch.testing.assert_close(after["bias"], torch.ones(2))


def test_adamw_takes_its_numbers_from_the_manifest() -> None:
    """The first AdamW update is the learning rate × g ÷ (|g| + epsilon)."""
    inner = Inner(optimizer="adamw", learning_rate=0.1, beta1=0.8, beta2=0.95, epsilon=0.5)
    after = updated(inner, gradient=1.0)
    torch.testing.assert_close(after["bias"], torch.full((2,), 1 - 0.1 / 1.5))
    groups = build_inner(nn.Linear(2, 2).parameters(), inner).param_groups
    assert [group["betas"] for group in groups] == [(0.8, 0.95)] * 2


def test_sgd_subtracts_the_gradient() -> None:
    """An SGD update subtracts learning rate × gradient."""
    after = updated(Inner(optimizer="sgd", learning_rate=0.1), gradient=2.0)
    torch.testing.assert_close(after["weight"], torch.full((2, 2), 0.8))


def test_the_learning_rate_can_change_before_each_update() -> None:
    """What the caller writes to each group's "lr" is what the next update uses."""
    layer = nn.Linear(2, 2)
    optimizer = build_inner(layer.parameters(), Inner(optimizer="adamw", learning_rate=0.1))
    before = [parameter.clone() for parameter in layer.parameters()]
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters(), strict=True))


def test_there_is_none_for_strategy_gradient() -> None:
    """A manifest without inner optimizer is refused, naming the strategy that has one."""
    with pytest.raises(UsageError, match="diloco"):
        build_inner(nn.Linear(2, 2).parameters(), Inner(optimizer="none"))
