"""A made-up driver of NVIDIA's."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any


class FakeNVML:
    """Stands in for pynvml, since there is no NVIDIA driver here; one reading is not supported.

    Attributes:
        processes: what each computes on its one GPU, in percent of the time, by pid.
        utilization: of the GPU, in percent.
    """

    class NVMLError(Exception):
        """Of whatever kind."""

    def __init__(self) -> None:
        self.processes: dict[int, int] = {}
        self.utilization = 97

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetIndex(self, _handle: str) -> int:
        return 3

    def nvmlDeviceGetUtilizationRates(self, _handle: str) -> Any:
        return SimpleNamespace(gpu=self.utilization)

    def nvmlDeviceGetProcessUtilization(self, _handle: str, since: int) -> list[Any]:
        assert 0 < time.time() - since / 1e6 < 60
        if not self.processes:
            raise self.NVMLError("not found")
        return [SimpleNamespace(pid=pid, smUtil=part) for pid, part in self.processes.items()]

    def nvmlDeviceGetMemoryInfo(self, _handle: str) -> Any:
        return SimpleNamespace(used=30 << 30, total=80 << 30)

    def nvmlDeviceGetTemperature(self, _handle: str, _sensor: int) -> int:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetTotalEnergyConsumption(self, _handle: str) -> int:
        return 1_500_000
