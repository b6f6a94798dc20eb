"""Moments in the main memory: what is learnt stays the same.

That they leave a card's memory is seen on a fake one, in `tests/learning/test_on_a_gpu.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dupt_swarm.learning.inner import offloading
from dupt_swarm.learning.inner.matrices import block_matrices
from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.learning.safe_state import read_tree, write_tree
from dupt_swarm.learning.strategies import build_strategy
from dupt_swarm.learning.strategies.flat import flatten
from dupt_swarm.learning.transformer.gpt import GPT
from tests.support.tiny import tiny_manifest

INNERS: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw", "embedding_scale": "own"},
    "sgd": {"optimizer": "sgd", "embedding_scale": "own"},
    "muon": {"optimizer": "muon", "embedding_scale": "own"},
    "by what is common": {"optimizer": "muon", "embedding_scale": "model"},
}
TOKENS = torch.arange(32).view(2, 16)


class Learner:
    """A small decoder that learns with a strategy, offloaded or not."""

    def __init__(self, inner: dict[str, Any], *, offload: bool) -> None:
        manifest = tiny_manifest(inner=inner, model={"layers": 2, "tie_embeddings": False})
        self.model = GPT(manifest.model)
        self.parameters = list(self.model.parameters())
        anchor = flatten(self.parameters)
        matrices, unigrams = block_matrices(self.model), Unigrams(self.model)
        self.strategy = build_strategy(self.parameters, manifest, anchor, matrices, unigrams, offload=offload)

    def learn(self, steps: int) -> None:
        for _ in range(steps):
            self.model(TOKENS, TOKENS + 1).backward()
            self.strategy.inner_step(32, 0.01)
            self.model.zero_grad()

    @property
    def values(self) -> Tensor:
        return flatten(self.parameters)


@pytest.mark.parametrize("inner", INNERS.values(), ids=INNERS)
@pytest.mark.parametrize("at_once", [1, 5_000, 1 << 25])
def test_updates_are_the_same(monkeypatch: pytest.MonkeyPatch, inner: dict[str, Any], at_once: int) -> None:
    """Bit for bit on a CPU, however many moments visit at once; and no gradient is kept."""
    monkeypatch.setattr(offloading, "VALUES_AT_ONCE", at_once)
    plain, offloaded = (Learner(inner, offload=offload) for offload in (False, True))
    first = plain.values
    for learner in (plain, offloaded):
        learner.learn(3)
    assert torch.equal(plain.values, offloaded.values)
    assert not torch.equal(plain.values, first)
    offloaded.model(TOKENS, TOKENS + 1).backward()
    offloaded.strategy.inner_step(32, 0.01)
    assert all(parameter.grad is None for parameter in offloaded.parameters)


@pytest.mark.parametrize("inner", INNERS.values(), ids=INNERS)
@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False), (True, True)])
def test_either_goes_on_from_the_other(
    tmp_path: Path, inner: dict[str, Any], before: bool, after: bool
) -> None:
    """A checkpoint holds the same, wherever moments were; so a smaller card may go on from a larger one's."""
    straight, saving, resumed = (Learner(inner, offload=offload) for offload in (False, before, after))
    straight.learn(4)
    saving.learn(2)
    write_tree(tmp_path / "saved", saving.strategy.state_dict())
    resumed.strategy.load_state_dict(read_tree(tmp_path / "saved"))
    assert not torch.equal(resumed.values, straight.values)
    resumed.learn(2)
    assert torch.equal(resumed.values, straight.values)


@pytest.mark.parametrize("inner", INNERS.values(), ids=INNERS)
def test_what_was_discarded_is_forgotten(inner: dict[str, Any]) -> None:
    """Moments too: what follows is what a new optimizer does."""
    new, discarding = (Learner(inner, offload=True) for _ in range(2))
    discarding.learn(2)
    discarding.strategy.discard()
    for learner in (new, discarding):
        learner.learn(2)
    assert torch.equal(new.values, discarding.values)
