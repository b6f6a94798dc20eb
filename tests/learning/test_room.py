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
from dupt_swarm.learning.room import Saving, make_room

GPU = torch.device("cuda")
BLOCK = nn.Linear(1, 1)
MODEL = nn.ModuleList([BLOCK])


def batch_of(sequences: int) -> Batch:
    return (torch.zeros(sequences, 1),)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, int], None]:
    """``memory(free, fixed, each)``: bytes that are free, that a step takes, and that each example adds."""

    def made_up(free: int, fixed: int, each: int) -> None:
        def compute(model: nn.Module, batch: Batch, _: torch.device) -> None:
            parameters = list(model.parameters())
            parameters[0].grad = torch.ones_like(parameters[0])
            peaks.append(fixed + each * len(batch[0]) // (10 if "forward" in BLOCK.__dict__ else 1))
            if peaks[-1] > free:
                raise torch.OutOfMemoryError("CUDA out of memory")

        peaks: list[int] = []
        monkeypatch.setattr(room, "_compute", compute)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: peaks[-1])
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 10 * free))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
        monkeypatch.setattr(torch.random, "fork_rng", lambda **_: torch.no_grad())

    return made_up


ONE_WAY = [Saving()]


def room_for(most: int, moments: int, part: float = 1.0) -> int:
    """How many sequences, if nothing gives way; gradients of trying are forgotten."""
    sequences, way = make_room(MODEL, batch_of, most, GPU, moments, ONE_WAY, part)
    assert way == Saving()
    assert all(parameter.grad is None for parameter in MODEL.parameters())
    return sequences


@pytest.mark.parametrize(
    ("free", "expected"), [(100_000, 64), (10_000, 64), (5_000, 39), (1_000, 3), (700, 1), (600, 1), (500, 1)]
)
def test_what_is_free_decides(memory: Callable[[int, int, int], None], free: int, expected: int) -> None:
    """Nine tenths of what is free, but for what comes later; one at least, at most what is asked for."""
    memory(free, 500, 100)
    assert room_for(64, 100) == expected
    assert room_for(1, 100) == 1


@pytest.mark.parametrize(("part", "expected"), [(1.0, 64), (0.05, 39), (0.01, 3), (0.001, 1)])
def test_others_have_the_rest(memory: Callable[[int, int, int], None], part: float, expected: int) -> None:
    """Of all memory, free or not, this process takes a part at most."""
    memory(10_000, 500, 100)  # of 100,000
    assert room_for(64, 100, part) == expected


def test_only_one_has_room(memory: Callable[[int, int, int], None]) -> None:
    """To try out several may fail; there is room for one all the same."""
    memory(1_000, 500, 200)
    assert room_for(64, 0) == 2
    memory(1_000, 100, 700)
    assert room_for(64, 0) == 1


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (2_000, (2, Saving())),  # 0.9·(2,000 − 800) = 1,080
        (1_500, (4, Saving(offload=True))),  # 0.9·1,500 = 1,350
        (600, (2, Saving(offload=True, checkpointing=True))),  # 540
        (100, (1, Saving(offload=True, checkpointing=True))),  # which will not do
    ],
)
def test_what_gives_way(
    memory: Callable[[int, int, int], None], free: int, expected: tuple[int, Saving]
) -> None:
    """Moments first, then activations, each only where there is no room for one sequence otherwise."""
    memory(free, 500, 200)
    found = make_room(MODEL, batch_of, 4, GPU, 800, Saving.ways(None, None))
    assert found == expected
    assert ("forward" in BLOCK.__dict__) == found[1].checkpointing


def test_the_owner_may_say_what_gives_way() -> None:
    """What is said is kept in every way."""
    yes, no = Saving(offload=True, checkpointing=True), Saving()
    assert list(Saving.ways(False, False)) == [no]
    assert list(Saving.ways(True, True)) == [yes]
    assert list(Saving.ways(True, None)) == [Saving(offload=True), yes]
    assert list(Saving.ways(None, True)) == [Saving(checkpointing=True), yes]
    assert list(Saving.ways(None, None)) == [no, Saving(offload=True), yes]


def test_what_is_not_there_cannot_give_way() -> None:
    """An optimizer without moments."""
    assert list(Saving.ways(True, None, moments=0)) == [Saving(), Saving(checkpointing=True)]


def test_examples_of_several_sequences(memory: Callable[[int, int, int], None]) -> None:
    """A batch of examples that have two sequences each is counted in sequences."""
    memory(10_000, 0, 1_000)
    pairs = make_room(MODEL, lambda count: (torch.zeros(max(1, count // 2)),), 64, GPU, 0, ONE_WAY)
    assert pairs == (2 * 9, Saving())


def test_elsewhere_nothing_is_tried() -> None:
    """On a CPU the answer is what was asked for."""

    def never(_: int) -> tuple[Tensor, ...]:
        raise AssertionError

    ways = Saving.ways(None, None)
    assert make_room(MODEL, never, 16, torch.device("cpu"), 0, ways) == (16, Saving())
