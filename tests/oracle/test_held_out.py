"""How often an oracle evaluates on held-out text."""

from __future__ import annotations

import time

import pytest

from dupt_swarm.learning.quality import Quality
from dupt_swarm.oracle.oracle import HeldOut


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
