"""Blocks of several corpora are dealt out by their weights, and go on exactly where they stopped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.errors import CheckpointError, CorpusError
from dupt_swarm.learning.batches import Batches
from dupt_swarm.learning.token_files import Split

K = 4
APART = 10_000  # between the tokens of two corpora: a token tells where it is from


def split(which: int, blocks: int) -> Split:
    return Split([np.arange(which * APART, which * APART + blocks * K + 1, dtype="<u2")])


def mix(
    blocks: Sequence[int], weights: Sequence[float], batch_size: int = 1, seed: int = 1, peer: str = "a"
) -> Batches:
    splits = [split(which, count) for which, count in enumerate(blocks)]
    return Batches(splits, K, batch_size, seed, peer, weights)


def deal(batches: Batches, count: int) -> list[tuple[int, int]]:
    """Corpus and block of the next ``count`` sequences."""
    rows = [int(row[0]) for inputs, _ in islice(batches, count) for row in inputs]
    return [(row // APART, row % APART // K) for row in rows]


def test_targets_follow_inputs() -> None:
    """Inputs and targets are int64 [batch_size, k], the targets one token later, and of one corpus each."""
    for inputs, targets in islice(mix([30, 20], [1, 0.3], batch_size=3), 50):
        assert (3, K) == inputs.shape == targets.shape
        assert torch.int64 == inputs.dtype == targets.dtype
        assert torch.equal(inputs + 1, targets)


def test_a_weight_is_how_often_a_token_is_seen() -> None:
    """Of two corpora of one size, one with weight 0.3, 1 / 1.3 of what is dealt out is of the other."""
    dealt = Counter(corpus for corpus, _ in deal(mix([1000, 1000], [1, 0.3]), 13_000))
    assert dealt == {0: 10_000, 1: 3_000}


def test_an_epoch_has_no_more_blocks_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much the swarm offers: of each its share, of what is little one block."""
    monkeypatch.setattr("dupt_swarm.learning.batches.EPOCH_BLOCKS_MAX", 100)
    stream: Any = SimpleNamespace(count=900)
    mixed = Batches([split(0, 90), split(1, 2)], K, 1, 1, "a", [1, 1, 1], stream)
    assert mixed.blocks == [9, 1, 91]


def test_size_counts_beside_the_weight() -> None:
    """A corpus of twice the size is dealt out twice as often at the same weight."""
    dealt = Counter(corpus for corpus, _ in deal(mix([100, 200, 300], [2, 1, 1]), 350 * 2))
    assert dealt == {0: 200, 1: 200, 2: 300}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=4), st.integers(1, 9), st.floats(0.1, 10))
def test_equal_weights_are_the_union(blocks: list[int], batch_size: int, weight: float) -> None:
    """In each epoch every block of every corpus is dealt out exactly once."""
    batches, total = mix(blocks, [weight] * len(blocks), batch_size), sum(blocks)
    every = sorted((which, block) for which, count in enumerate(blocks) for block in range(count))
    dealt = deal(batches, -(-3 * total // batch_size))
    for epoch in range(3):
        assert sorted(dealt[epoch * total : (epoch + 1) * total]) == every


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 1))
def test_all_blocks_of_a_corpus_come_equally_often(large: int, small: int, weight: float) -> None:
    """However little of it an epoch has: none comes twice more often than another."""
    batches = mix([large, small], [1, weight])
    dealt = Counter(block for corpus, block in deal(batches, 7 * sum(batches.blocks)) if corpus == 1)
    counts = [dealt[block] for block in range(small)]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == 7 * batches.blocks[1] == 7 * max(1, round(small * weight))


def test_only_the_ratio_of_the_weights_matters() -> None:
    """1 and 0.5 are 10 and 5, and what no float can multiply is no danger."""
    assert deal(mix([9, 8], [1, 0.5]), 50) == deal(mix([9, 8], [10, 5]), 50)
    assert mix([9, 8], [1e308, 1e-308]).blocks == [9, 1]


def test_every_part_of_an_epoch_is_mixed() -> None:
    """No corpus comes first: any 130 of the blocks hold about 30 of the one with weight 0.3."""
    dealt = deal(mix([1000, 1000], [1, 0.3]), 1300)
    for start in range(0, 1300, 130):
        assert 12 <= sum(corpus for corpus, _ in dealt[start : start + 130]) <= 48


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 9))
def test_resume_is_exact(before: int, batch_size: int, other_size: int) -> None:
    """A state that went through JSON goes on with the very next block, whatever the batch size."""
    batches = mix([7, 9], [1, 0.4], batch_size)
    deal(batches, before)
    resumed = mix([7, 9], [1, 0.4], other_size)
    resumed.load_state_dict(json.loads(json.dumps(batches.state_dict())))
    assert deal(batches, 60)[:60] == deal(resumed, 60)[:60]


def test_order_depends_on_seed_and_peer() -> None:
    """Another seed or peer gives another order; the same ones give the same, on every machine."""
    orders = {tuple(deal(mix([30, 40], [1, 0.3], 20, *more), 1)) for more in ((1, "a"), (2, "a"), (1, "b"))}
    assert len(orders) == 3
    batches = mix([4, 6], [1, 0.5], 7)
    first, second = deal(batches, 1), deal(batches, 1)
    assert first == [(0, 3), (0, 1), (1, 1), (0, 0), (1, 0), (1, 4), (0, 2)]
    assert second == [(1, 5), (1, 2), (0, 2), (0, 3), (0, 1), (0, 0), (1, 3)]


def test_a_position_fits_any_mixture() -> None:
    """Who adds a corpus, takes one away or changes a weight goes on from the same checkpoint."""
    alone, mixed = Batches([split(0, 7)], K, 3, 1, "a"), mix([7, 9], [1, 0.4], 3)
    deal(alone, 4)
    mixed.load_state_dict(alone.state_dict())
    deal(mixed, 4)
    assert mixed.state_dict() == {"epoch": 2, "position": 6}
    alone.load_state_dict(mixed.state_dict())
    deal(alone, 1)
    with pytest.raises(CheckpointError, match="another checkpoint"):
        mixed.load_state_dict({"epoch": -1, "position": 0})


def test_a_single_corpus_may_be_mixed_too() -> None:
    """Each of its blocks comes once per epoch, whatever its weight."""
    assert sorted(deal(mix([9], [0.3]), 9)) == [(0, block) for block in range(9)]


def test_too_short_for_a_block() -> None:
    """A corpus shorter than k + 1 tokens is refused at once."""
    with pytest.raises(CorpusError, match="one block needs 5"):
        mix([9, 0], [1, 1])
