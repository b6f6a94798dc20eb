"""What NVIDIA's driver knows of a GPU, through NVML; nothing, where there is no driver."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any

import torch

LAST_SECONDS = 5.0
SENSOR = 0  # NVML_TEMPERATURE_GPU


def nvml() -> Any:
    """The library `pynvml`, ready; None: it is not there, or finds no driver."""
    try:
        import pynvml  # not there on every machine

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, the wrong one: each has an error of its own
        return None
    return pynvml


def card_of_driver() -> str:
    """The name of an NVIDIA GPU that the driver knows; empty: there is none, or no driver."""
    driver = nvml()
    try:
        return str(driver.nvmlDeviceGetName(driver.nvmlDeviceGetHandleByIndex(0))) if driver else ""
    except driver.NVMLError:  # it has no card
        return ""


def free_bytes(device: torch.device) -> float:
    """Of the memory of this GPU, so many are free; 0: nobody can tell."""
    card = Card.of_device(device)
    return (card and card.free_bytes()) or 0.0


def cards_of(devices: Iterable[torch.device]) -> list[Card]:
    """The GPUs among them, those of NVIDIA."""
    return [card for card in map(Card.of_device, devices) if card is not None]


class Card:
    """One GPU, by its identifier, so that CUDA_VISIBLE_DEVICES does not confuse it with others.

    Attributes:
        nvml: see `nvml`; None: the driver knows no such GPU.
        handle: of the GPU, for ``nvml``.
        index: its number among the driver's.
    """

    def __init__(self, uuid: str) -> None:
        """Find the GPU ``uuid``."""
        self.nvml, self.handle, self.index = nvml(), None, 0
        if self.nvml is not None:
            try:
                self.handle = self.nvml.nvmlDeviceGetHandleByUUID(uuid)
                self.index = int(self.nvml.nvmlDeviceGetIndex(self.handle))
            except self.nvml.NVMLError:  # such as a virtual GPU
                self.nvml = None

    @classmethod
    def of_device(cls, device: torch.device) -> Card | None:
        """The GPU behind ``device``; None if that is none of NVIDIA's."""
        if device.type != "cuda":
            return None
        uuid = str(torch.cuda.get_device_properties(device).uuid)
        return cls(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")

    def utilization(self) -> float | None:
        """The part of the last moment for which it computed; None: nobody can tell."""
        percent = self._read("nvmlDeviceGetUtilizationRates", of="gpu")
        return None if percent is None else percent / 100

    def temperature(self) -> float | None:
        """Of the GPU, °C; None: nobody can tell."""
        return self._read("nvmlDeviceGetTemperature", SENSOR)

    def energy(self) -> float | None:
        """Drawn since the driver was loaded, J; None: nobody can tell."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def free_bytes(self) -> float | None:
        """Of its memory; None: nobody can tell."""
        return self._read("nvmlDeviceGetMemoryInfo", of="free")

    def used_bytes(self) -> float | None:
        """Of its memory, by whatever process; None: nobody can tell."""
        return self._read("nvmlDeviceGetMemoryInfo", of="used")

    def total_bytes(self) -> float | None:
        """Of its memory; None: nobody can tell."""
        return self._read("nvmlDeviceGetMemoryInfo", of="total")

    def used_by_others(self, ours: Collection[int], *, computing: bool) -> float | None:
        """The part of the last seconds for which others have computed on it; None: nobody can tell.

        Args:
            ours: pids of this peer's processes.
            computing: whether they compute on it now.
        """
        if self.nvml is None:
            return None
        if not computing:
            return self.utilization()
        try:
            since = int((time.time() - LAST_SECONDS) * 1e6)
            found = self.nvml.nvmlDeviceGetProcessUtilization(self.handle, since)
        except self.nvml.NVMLError:  # this GPU does not know, or has seen nobody
            return None
        found = [each for each in found if each.smUtil <= 100]  # some drivers tell nonsense of what has ended
        # In a container the driver's pids are not ours: then our own work would look like that of others.
        if not any(each.pid in ours for each in found):
            return None
        return float(sum(each.smUtil for each in found if each.pid not in ours)) / 100

    def _read(self, call: str, *arguments: Any, of: str = "") -> float | None:
        """What the driver answers, or a part of it; None: there is no driver, or this GPU does not know."""
        if self.nvml is None:
            return None
        try:
            found = getattr(self.nvml, call)(self.handle, *arguments)
        except self.nvml.NVMLError:
            return None
        return float(getattr(found, of) if of else found)
