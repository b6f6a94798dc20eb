"""What the driver reports about the GPU that a peer trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dupt_swarm.metrics import peer as names
from dupt_swarm.metrics.spec import MetricSpec, Sample

if TYPE_CHECKING:
    from dupt_swarm.learning.driver import Card


class Gpu:
    """The metrics of one NVIDIA GPU."""

    def __init__(self, card: Card) -> None:
        """Without a driver that knows ``card`` there are no samples."""
        self._card = card

    @classmethod
    def of_device(cls, device: str) -> Gpu | None:
        """The GPU behind a torch device; None if it is not an NVIDIA GPU."""
        if not device.startswith("cuda"):
            return None  # without loading PyTorch
        import torch

        from dupt_swarm.learning.driver import Card

        card = Card.of_device(torch.device(device))
        return None if card is None else cls(card)

    def samples(self) -> Iterator[tuple[MetricSpec, list[Sample]]]:
        """What can be read now; not every GPU knows everything."""
        nvml, handle = self._card.nvml, self._card.handle
        if nvml is None:
            return
        labels = (str(self._card.index),)
        temperature = nvml.NVML_TEMPERATURE_GPU
        readings: tuple[tuple[MetricSpec, Callable[[Any], float]], ...] = (
            (names.GPU_UTILIZATION, lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
            (names.GPU_MEMORY_USED, lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
            (names.GPU_MEMORY_TOTAL, lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
            (names.GPU_TEMPERATURE, lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, temperature)),
            # From millijoules.
            (names.GPU_ENERGY, lambda gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000),
        )
        for spec, read in readings:
            try:
                yield spec, [(labels, float(read(handle)))]
            except nvml.NVMLError:
                continue  # this one does not know that
