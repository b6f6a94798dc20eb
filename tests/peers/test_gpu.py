"""What a peer exports of its GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dupt_swarm.learning.driver import Card
from peers.metrics.collector import cards_among, samples_of
from tests.support.fake_nvml import FakeNVML


def test_a_gpu_in_base_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a made-up driver: ratio, bytes and joules, by the driver's number; what it lacks is left out."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML())
    read = {spec.name: samples for spec, samples in samples_of([Card("GPU-1")])}
    assert read == {
        "dupt_peer_gpu_utilization_ratio": [(("3",), 0.97)],
        "dupt_peer_gpu_memory_used_bytes": [(("3",), float(30 << 30))],
        "dupt_peer_gpu_memory_total_bytes": [(("3",), float(80 << 30))],
        "dupt_peer_gpu_energy_joules_total": [(("3",), 1500.0)],
    }
    assert list(samples_of([Card("GPU-2")])) == []


def test_a_gpu_at_rest_is_told() -> None:
    """Zero is a figure."""
    card: Any = SimpleNamespace(index=0, **{read: lambda: 0 for read in ("utilization", "used_bytes")})
    for read in ("total_bytes", "temperature", "energy"):
        setattr(card, read, lambda: None)
    assert [samples for _, samples in samples_of([card])] == [[(("0",), 0)], [(("0",), 0)]]


def test_without_a_gpu_there_are_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NVIDIA device, or no library: nothing is exported, and nothing fails."""
    assert list(cards_among("cpu")) == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert list(samples_of([Card("GPU-1")])) == []
