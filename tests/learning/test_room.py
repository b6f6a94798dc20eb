"""How many sequences fit into a GPU.

There is none here, so its memory is made up: what a batch takes, and what is free. `benchmarks/gpu.py` checks
the rest on a real one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dupt_swarm.learning import room
from dupt_swarm.learning.batches import Batch
from dupt_swarm.learning.room import sequences_that_fit

GPU = torch.device("cuda")
MODEL = nn.Linear(1, 1)


def batch_of(sequences: int) -> Batch:
    return (torch.zeros(sequences, 1),)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, int], None]:
    """``memory(free, fixed, each)``: bytes that are free, that a step takes, and that each example adds."""

    def made_up(free: int, fixed: int, each: int) -> None:
        def peak(_: nn.Module, batch: Batch, __: torch.device) -> int:
            needed = fixed + each * len(batch[0])
            if needed > free:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return needed

        monkeypatch.setattr(room, "_peak", peak)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 10 * free))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
        monkeypatch.setattr(torch.random, "fork_rng", lambda **_: torch.no_grad())

    return made_up


@pytest.mark.parametrize(
    ("free", "expected"), [(100_000, 64), (10_000, 64), (5_000, 39), (1_000, 3), (700, 1), (600, 1)]
)
def test_what_is_free_decides(memory: Callable[[int, int, int], None], free: int, expected: int) -> None:
    """Nine tenths of what is free, but for what comes later; one at least, at most what is asked for."""
    memory(free, 500, 100)
    assert sequences_that_fit(MODEL, batch_of, 64, GPU, 100) == expected


@pytest.mark.parametrize(("part", "expected"), [(1.0, 64), (0.05, 39), (0.01, 3), (0.001, 1)])
def test_others_have_the_rest(memory: Callable[[int, int, int], None], part: float, expected: int) -> None:
    """Of all memory, free or not, this process takes a part at most."""
    memory(10_000, 500, 100)  # of 100,000
    assert sequences_that_fit(MODEL, batch_of, 64, GPU, 100, part) == expected


def test_examples_of_several_sequences(memory: Callable[[int, int, int], None]) -> None:
    """A batch of examples that have two sequences each is counted in sequences."""
    memory(10_000, 0, 1_000)
    found = sequences_that_fit(MODEL, lambda sequences: (torch.zeros(max(1, sequences // 2)),), 64, GPU, 0)
    assert found == 2 * 9


def test_elsewhere_nothing_is_tried() -> None:
    """On a CPU the answer is what was asked for."""

    def never(_: int) -> tuple[Tensor, ...]:
        raise AssertionError

    assert sequences_that_fit(MODEL, never, 16, torch.device("cpu"), 0) == 16
