"""A judge with a small model and held-out text of its own."""

import pytest
import torch
from torch import nn

from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.oracle.judge import BLOCKS, TOKENS_RATIO, Judge, accepts

CONTEXT = 8
ENOUGH = int(BLOCKS[0] * CONTEXT / TOKENS_RATIO) + 1
NAN, INF = float("nan"), float("inf")


class Measured:
    """The loss is how far the one weight is from 2."""

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1, bias=False)
        self.model.weight.data.fill_(5.0)
        self.calls: list[tuple[int, int]] = []
        self.judge = Judge(list(self.model.parameters()), CONTEXT, self.measure)

    def measure(self, blocks: int, first: int) -> float:
        self.calls.append((blocks, first))
        return float((self.model.weight.detach() - 2.0).abs())

    def accepts(self, before: float, after: float, tokens: int = ENOUGH) -> bool:
        return self.judge(tokens, *((f"{value}", torch.tensor([value])) for value in (before, after)))


def test_what_helps_is_accepted_and_what_harms_is_not() -> None:
    """By the loss with each state's values; the model's own, and its gradients, are as before."""
    measured = Measured()
    measured.model(torch.ones(1, 1)).sum().backward()
    assert measured.accepts(4.0, 3.0)
    assert measured.accepts(4.0, 4.01)
    assert not measured.accepts(4.0, 4.1)
    assert not measured.accepts(4.0, float("nan"))
    assert measured.model.weight.item() == 5.0
    assert measured.model.weight.grad is not None and measured.model.weight.grad.item() == 1.0


def test_a_state_is_measured_once() -> None:
    """The one after a round is the one before the next."""
    measured = Measured()
    assert measured.accepts(6.0, 5.0) and measured.accepts(5.0, 4.0)
    assert measured.calls == 3 * [(4, 0), (4, 4), (4, 8), (4, 12)]


@pytest.mark.parametrize(("part", "blocks"), [(1.0, 16), (0.99, 8), (0.51, 8), (0.26, 4), (0.2, None)])
def test_short_rounds_have_few_blocks(part: float, blocks: int | None) -> None:
    """A few per cent of the tokens that were trained on; where that is too little, all is accepted."""
    measured = Measured()
    assert measured.accepts(4.0, 9.0, int(part * ENOUGH)) == (blocks is None)
    assert sum(count for count, _ in measured.calls) == 2 * (blocks or 0)


def test_a_peer_that_is_told_to_stop_does_not_look() -> None:
    """It accepts, and the model is as before."""
    measured = Measured()

    def abandoned(*_: int) -> float:
        raise Abandoned

    judge = Judge(list(measured.model.parameters()), CONTEXT, abandoned)
    assert judge(ENOUGH, ("a", torch.tensor([4.0])), ("b", torch.tensor([9.0])))
    assert measured.model.weight.item() == 5.0


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (3.0, 3.0, True),
        (3.0, 1.0, True),
        (3.0, 3.02, True),
        (3.0, 3.04, False),
        (100.0, 101.005, False),  # of the loss before, not of the one after
        (3.0, NAN, False),
        (3.0, INF, False),
        (3.0, -INF, False),
        (NAN, 3.0, False),
        (0.002, 0.009, True),
        (0.002, 0.013, False),
    ],
)
def test_a_member_accepts_what_is_hardly_worse(before: float, after: float, expected: bool) -> None:
    """The loss may rise by one per cent, or a hundredth of a nat; one that is no number is not accepted."""
    assert accepts([before, before], [after, after]) == expected


@pytest.mark.parametrize(
    ("rises", "expected"),
    [
        ((0.07, 0.06, 0.07, 0.06), False),  # all alike
        ((0.32, -0.2, 0.32, -0.18), True),  # as much in the mean: chance
        ((0.9, -0.1, 0.0, 0.0), True),
        ((0.152, 0.048, 0.152, 0.048), True),  # within two standard errors
        ((0.135, 0.065, 0.135, 0.065), False),
        ((2.0, 0.0, 0.0, 0.0), False),  # what is this bad is not accepted as chance
    ],
)
def test_what_may_be_chance_is_accepted(rises: tuple[float, ...], expected: bool) -> None:
    """Losses of few tokens rise and fall by more than a good round changes them, but not all alike."""
    assert accepts([5.0] * 4, [5.0 + rise for rise in rises]) == expected
