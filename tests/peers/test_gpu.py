"""What a peer exports of its GPU."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dupt_swarm.learning.driver import Card
from peers.metrics.gpu import Gpu


class FakeNVML:
    """Stands in for pynvml, since there is no NVIDIA driver here; one reading is not supported."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetIndex(self, _handle: str) -> int:
        return 3

    def nvmlDeviceGetUtilizationRates(self, _handle: str) -> Any:
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> Any:
        return SimpleNamespace(used=30 << 30, total=80 << 30)

    def nvmlDeviceGetTemperature(self, _handle: str, _sensor: int) -> int:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: str) -> int:
        return 1_500_000


def test_a_gpu_in_base_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a made-up driver: ratio, bytes and joules, by the driver's number; what it lacks is left out."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNVML())
    read = {spec.name: samples for spec, samples in Gpu(Card("GPU-1")).samples()}
    assert read == {
        "dupt_peer_gpu_utilization_ratio": [(("3",), 0.97)],
        "dupt_peer_gpu_memory_used_bytes": [(("3",), float(30 << 30))],
        "dupt_peer_gpu_memory_total_bytes": [(("3",), float(80 << 30))],
        "dupt_peer_gpu_energy_joules_total": [(("3",), 1500.0)],
    }
    assert list(Gpu(Card("GPU-2")).samples()) == []


def test_without_a_gpu_there_are_no_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """No NVIDIA device, or no library: nothing is exported, and nothing fails."""
    assert Gpu.of_device("cpu") is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert list(Gpu(Card("GPU-1")).samples()) == []
