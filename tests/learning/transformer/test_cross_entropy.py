"""The loss of a linear layer's logits, with a bias and with smoothed labels."""

import pytest
import torch
from torch.nn import functional as F

from dupt_swarm.learning.transformer import cross_entropy
from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("multiple", [1, 8])
def test_the_loss_and_all_gradients_are_pytorchs(
    monkeypatch: pytest.MonkeyPatch, shares: bool, smoothing: float, biased: bool, multiple: int
) -> None:
    """With a bias and without, with smoothed labels, and with a vocabulary that is padded."""
    monkeypatch.setitem(cross_entropy.MULTIPLE, "cpu", multiple)
    x, weight, bias = (random(*shape, seed=number) for number, shape in enumerate([(7, 5), (11, 5), (11,)]))
    targets = torch.arange(7) % 11
    given = random(7, seed=9).abs() if shares else None
    both = []
    for ours in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)[: 2 + biased]]
        if ours:
            loss = linear_cross_entropy(
                leaves[0], leaves[1], targets, given, leaves[2] if biased else None, smoothing
            )
        else:
            logits = F.linear(*leaves)
            each = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
            loss = each.mean() if given is None else (each * given).sum()
        (2 * loss).backward()
        both.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
