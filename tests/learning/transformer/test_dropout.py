"""Dropout by a hash, as compiled models have it on GPUs; here Dynamo traces it for the CPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from dupt_swarm.learning.transformer import dropout
from dupt_swarm.learning.transformer.dropout import Dropout, hashed, threshold

SHAPE = torch.Size((64, 128, 96))
NUMBER = SHAPE.numel()
DRAWN = [
    torch.tensor(two, dtype=torch.int32) for two in ((0, 0), (1, 0), (0, 1), (-7, 1 << 30), (-7, 1 << 29))
]


def part(kept: Tensor) -> float:
    return kept.double().mean().item()


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("drawn", DRAWN, ids=str)
def test_so_many_are_left_out_everywhere(drawn: Tensor, p: float) -> None:
    """In all, and in each row and column, within five standard errors."""
    kept = (hashed(SHAPE, drawn) >= threshold(p)).double()
    for dims in ((0, 1, 2), (1, 2), (0, 2), (0, 1)):
        means = kept.mean(dims)
        error = (p * (1 - p) / (NUMBER / means.numel())) ** 0.5
        assert (means - (1 - p)).abs().max() < 5 * error, dims


def test_neighbours_and_other_draws_know_nothing_of_one_another() -> None:
    """Correlations of masks with what is beside, below and drawn otherwise are noise."""
    masks = [(hashed(SHAPE, drawn) >= threshold(0.5)).double() * 2 - 1 for drawn in DRAWN]
    products = [mask[1:] * mask[:-1] for mask in masks]
    products += [mask[:, 1:] * mask[:, :-1] for mask in masks]
    products += [mask[..., 1:] * mask[..., :-1] for mask in masks]
    products += [one * other for one, other in pairwise(masks)]
    for product in products:
        assert abs(product.mean().item()) < 5 / product.numel() ** 0.5


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Dropout:
    monkeypatch.setattr(dropout, "HASHED_ON", {"cpu"})
    torch.compiler.reset()
    layer = Dropout(0.25)
    layer.compile(backend="eager")
    return layer


def test_compiled_it_is_dropout(compiled: Dropout) -> None:
    """A value is 0 or divided by 1 − p, its gradient likewise, each time others, and the same from a seed."""
    x = torch.full((200, 300), 3.0, requires_grad=True)
    torch.manual_seed(0)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(0)
    again = compiled(x)
    assert torch.equal(first.unique(), torch.tensor([0.0, 4.0]))
    assert part(first == 0) == pytest.approx(0.25, abs=0.01)
    assert torch.equal(first, again)
    assert part((first == 0) & (second == 0)) == pytest.approx(0.25**2, abs=0.01)
    first.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.where(first == 0, 0.0, 1 / 0.75))
    compiled.eval()
    assert torch.equal(compiled(x), x)


def test_as_written_it_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a compiler a hash of many small operations would be slow."""
    monkeypatch.setattr(dropout, "HASHED_ON", {"cpu"})
    x = torch.ones(1000)
    torch.manual_seed(0)
    ours = Dropout(0.1)(x)
    torch.manual_seed(0)
    assert torch.equal(ours, torch.nn.Dropout(0.1)(x))
