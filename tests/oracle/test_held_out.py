"""What an oracle measures on held-out text, and how often."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.quality import Quality
from dupt_swarm.oracle.held_out import HeldOut, HeldOutText


@pytest.mark.parametrize(("seconds", "most"), [(0.1, 0.02), (1.0, 0.02), (20.0, 0.02)])
def test_evaluations_take_little_of_the_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, most: float
) -> None:
    """In the first minutes two per cent, as most changes then; over days less than half a per cent."""
    now, taken, shares = 0.0, 0.0, {}
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def evaluate() -> Quality:
        nonlocal now, taken
        now += seconds
        taken += seconds
        return Quality(1.0, {})

    held_out = HeldOut(evaluate)
    while now < 3 * 86_400:
        held_out.measure_if_due()
        now += 10.0
        shares[now] = (taken - seconds) / now  # the first is due at the start
    assert max(shares.values()) <= most
    assert shares[now] < 0.005


class Cramped:
    """Data for which the device has room if few sequences are measured at once."""

    def __init__(self, room: int) -> None:
        self.room, self.tried = room, list[int]()

    def measure_held_out(
        self, _: nn.Module, __: torch.device, sequences: int, most: int, look: Any, first: int
    ) -> Quality:
        del look, first
        self.tried.append(sequences)
        if sequences > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return Quality(float(most), {})


def text_of(data: Cramped, sequences: int) -> HeldOutText:
    return HeldOutText(data, nn.Linear(1, 1), torch.device("cpu"), sequences)  # type: ignore[arg-type]


def test_out_of_memory_means_fewer_sequences() -> None:
    """Beside what training has on a card there may be less room; what was found out is kept."""
    data = Cramped(5)
    text = text_of(data, 16)
    assert [text.measure(3, lambda *_: None).loss_nats for _ in range(2)] == [3.0, 3.0]
    assert data.tried == [16, 8, 4, 4]


def test_no_room_for_one_is_said() -> None:
    """Then nothing helps that an oracle could do."""
    with pytest.raises(DeviceError, match="out of memory measuring one sequence"):
        text_of(Cramped(0), 2).measure(3, lambda *_: None)


def test_other_failures_are_not_taken_for_it() -> None:
    """They would come again and again."""
    data = Cramped(5)
    data.measure_held_out = lambda *_: (_ for _ in ()).throw(RuntimeError("an illegal instruction"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="illegal"):
        text_of(data, 2).measure(3, lambda *_: None)


def test_the_first_one_stays() -> None:
    """To be shown beside the latest."""
    found = [Quality(loss, {}) for loss in (3.0, 2.0, 1.0)]
    coming = iter(found)
    held_out = HeldOut(lambda: next(coming))
    for _ in found:
        held_out.measure()
    assert (held_out.first, held_out.latest) == (found[0], found[2])
