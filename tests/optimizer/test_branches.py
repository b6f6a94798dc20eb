"""What a branch has learnt that lost against another one: it is in the next state, as its loss shows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dupt_swarm.learning.strategies import build_strategy
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.aggregation import RULES
from dupt_swarm.replica.aggregation.bounding import Bounded
from tests.support.tiny import tiny_manifest

COMMON, RARE = range(8, 64), range(8)  # tokens of the five's text, and of the two's


class Oracle:
    """One that trains on random text of ``tokens``."""

    def __init__(self, manifest: Manifest, anchor: Tensor, tokens: range, seed: int) -> None:
        self.model = GPT(manifest.model)
        self.strategy = build_strategy(list(self.model.parameters()), manifest, anchor)
        self._tokens, self._random = tokens, torch.Generator().manual_seed(seed)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.model.zero_grad()
            loss_of(self.model, self._tokens, self._random).backward()
            self.strategy.inner_step(64, 1e-3)

    def contribute(self) -> Tensor:
        self.strategy.mark()
        return self.strategy.contribute()


def loss_of(model: GPT, tokens: range, random: torch.Generator) -> Tensor:
    """Of four random texts of ``tokens``."""
    text = torch.randint(tokens.start, tokens.stop, (4, 17), generator=random)
    return model(text[:, :-1], text[:, 1:])


def next_anchor(manifest: Manifest, anchor: Tensor, contributions: list[Tensor]) -> Tensor:
    """As the swarm makes it of these, but for the outer optimizer's momentum."""
    norms = [float(each.norm()) for each in contributions]
    bounded = Bounded.of(lambda: [[each.clone() for each in contributions]], norms, [640.0] * len(norms))
    [average] = RULES[manifest.aggregation.rule](bounded)
    return anchor - average


def after_rounds(rounds: int, oracles: list[Oracle], manifest: Manifest, anchor: Tensor) -> Tensor:
    """The anchor after so many of ten steps each."""
    for _ in range(rounds):
        for each in oracles:
            each.train(10)
        anchor = next_anchor(manifest, anchor, [each.contribute() for each in oracles])
        for each in oracles:
            each.strategy.accept(anchor)
    return anchor


@pytest.mark.parametrize("rule", ["mean", "agreeing_mean"])
def test_what_two_of_seven_have_learnt_apart_comes_back(rule: str) -> None:
    """The state of all is better on text that only the two had, and only while they were apart.

    By little, as two contributions of seven may do little: it is held against the same round without it.
    """
    manifest = tiny_manifest(aggregation={"rule": rule}, inner={"optimizer": "adamw"})
    torch.manual_seed(1)
    model = GPT(manifest.model)
    origin = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    there, left = (
        after_rounds(3, [Oracle(manifest, origin, text, seed) for seed in seeds], manifest, origin)
        for text, seeds in ((COMMON, range(5)), (RARE, range(5, 7)))
    )
    losses = []
    for part in (0.5, 0.0):
        five = [Oracle(manifest, there, COMMON, seed) for seed in range(7, 12)]
        two = [Oracle(manifest, left, COMMON, seed) for seed in range(12, 14)]
        for each in two:
            each.strategy.bring_back(there, origin, part)
        torch.nn.utils.vector_to_parameters(
            after_rounds(1, [*five, *two], manifest, there), model.parameters()
        )
        losses.append(loss_of(model, RARE, torch.Generator().manual_seed(9)).item())
    brought, lost = losses
    assert brought < lost - 0.005
