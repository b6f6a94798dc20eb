"""Batches deal out every block once per epoch and resume exactly."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.errors import CheckpointError, CorpusError
from dupt_swarm.learning.batches import Batches, held_out_batches
from dupt_swarm.learning.token_files import Split

TOKENS = np.arange(1001, dtype="<u2")
SPLIT = Split([TOKENS[:300], TOKENS[300:600], TOKENS[600:900], TOKENS[900:]])


def starts(batches: Batches, count: int) -> list[int]:
    """The first tokens of the next ``count`` sequences."""
    return [int(row[0]) for inputs, _ in islice(batches, count) for row in inputs]


def test_targets_follow_inputs() -> None:
    """Inputs and targets are int64 [batch_size, k], the targets one token later, across files too."""
    for inputs, targets in islice(Batches([SPLIT], 7, 3, seed=1, peer="a"), 100):
        assert (3, 7) == inputs.shape == targets.shape
        assert torch.int64 == inputs.dtype == targets.dtype
        assert inputs.is_contiguous() and targets.is_contiguous()
        assert torch.equal(inputs + 1, targets)
        assert torch.equal(inputs[:, :1] + torch.arange(7), inputs)


@given(st.integers(4, 200), st.integers(1, 20), st.integers(1, 9), st.integers(0, 2**63 - 1), st.text())
def test_each_block_once_per_epoch(tokens: int, k: int, batch_size: int, seed: int, peer: str) -> None:
    """In each epoch every block of k + 1 tokens is dealt out exactly once."""
    k = min(k, tokens - 1)
    batches = Batches([Split([TOKENS[:tokens]])], k, batch_size, seed, peer)
    blocks = (tokens - 1) // k
    assert [blocks] == batches.blocks
    dealt = starts(batches, -(-3 * blocks // batch_size))
    for epoch in range(3):
        assert list(range(0, blocks * k, k)) == sorted(dealt[epoch * blocks : (epoch + 1) * blocks])


@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 9))
def test_resume_is_exact(before: int, batch_size: int, other_size: int) -> None:
    """A state that went through JSON goes on with the very next block, whatever the batch size."""
    batches = Batches([SPLIT], 50, batch_size, seed=1, peer="a")
    starts(batches, before)
    resumed = Batches([SPLIT], 50, other_size, seed=1, peer="a")
    resumed.load_state_dict(json.loads(json.dumps(batches.state_dict())))
    assert starts(batches, 60)[:60] == starts(resumed, 60)[:60]


def test_order_depends_on_seed_peer_and_epoch() -> None:
    """Another seed, peer or epoch gives another order; the same ones give the same."""
    first = Batches([SPLIT], 10, 100, seed=1, peer="a")
    orders = [starts(first, 1), starts(first, 1)]
    orders += [starts(Batches([SPLIT], 10, 100, seed, peer), 1) for seed, peer in ((2, "a"), (1, "b"))]
    assert len({tuple(order) for order in orders}) == 4
    assert orders[0] == starts(Batches([SPLIT], 10, 100, seed=1, peer="a"), 1)


def test_order_is_fixed_for_ever() -> None:
    """The order is the same on every machine and with every version of numpy."""
    expected = [800, 700, 300, 0, 400, 100, 600, 900, 500, 200]
    assert expected == starts(Batches([SPLIT], 100, 10, seed=1, peer="a"), 1)


def test_resume_with_a_shorter_corpus() -> None:
    """A position beyond the end of a corpus that has shrunk goes on with the next epoch."""
    batches = Batches([SPLIT], 10, 1, seed=1, peer="a")
    batches.load_state_dict({"epoch": 2, "position": 5000})
    next(batches)
    assert batches.state_dict() == {"epoch": 3, "position": 1}


@pytest.mark.parametrize(
    "state", [{}, {"epoch": 0}, {"epoch": -1, "position": 0}, {"epoch": 0, "position": 1.5}]
)
def test_bad_state(state: dict[str, object]) -> None:
    """A state that is none is refused."""
    with pytest.raises(CheckpointError, match="another checkpoint"):
        Batches([SPLIT], 10, 1, seed=1, peer="a").load_state_dict(state)


def test_held_out_in_order() -> None:
    """Held-out blocks come in order, once each, with a smaller last batch, up to the cap."""
    assert [len(inputs) for inputs, _ in held_out_batches(SPLIT, 100, 4)] == [4, 4, 2]
    rows = [row for inputs, _ in held_out_batches(SPLIT, 100, 4, max_blocks=5) for row in inputs]
    assert torch.equal(torch.arange(500), torch.cat(rows))


def test_held_out_from_some_block_on() -> None:
    """Counted around the end, so that each place has as many; never the same block twice."""
    for first in (0, 8, 10, 1 << 31):
        rows = [int(row[0]) for inputs, _ in held_out_batches(SPLIT, 100, 4, 5, first) for row in inputs]
        assert rows == [100 * ((first + number) % 10) for number in range(5)]
    assert sum(len(inputs) for inputs, _ in held_out_batches(SPLIT, 100, 4, 50, 7)) == 10


def test_too_short_for_a_block() -> None:
    """A split shorter than k + 1 tokens is refused at once, with both numbers."""
    split = Split([TOKENS[:100]])
    with pytest.raises(CorpusError, match="there are 100 tokens, but one block needs 101"):
        Batches([split], 100, 1, seed=1, peer="a")
    with pytest.raises(CorpusError, match="there are 100 tokens, but one block needs 101"):
        held_out_batches(split, 100, 1)
