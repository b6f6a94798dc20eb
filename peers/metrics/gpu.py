"""What the driver reports about the GPUs that a peer trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dupt_swarm.metrics import peer as names
from dupt_swarm.metrics.spec import MetricSpec, Sample

if TYPE_CHECKING:
    from dupt_swarm.learning.driver import Card


class Gpus:
    """The metrics of NVIDIA GPUs."""

    def __init__(self, cards: Sequence[Card]) -> None:
        """Of a card that the driver does not know there are no samples."""
        self._cards = [card for card in cards if card.nvml is not None]

    @classmethod
    def of_devices(cls, devices: str) -> Gpus:
        """Those among them; for what ``devices`` is see `several_devices`."""
        if not devices.startswith("cuda"):
            return cls([])  # without loading PyTorch
        from dupt_swarm.learning.device import several_devices
        from dupt_swarm.learning.driver import cards_of

        return cls(cards_of(several_devices(devices)))

    def samples(self) -> Iterator[tuple[MetricSpec, list[Sample]]]:
        """What can be read now; not every GPU knows everything."""
        if not self._cards:
            return
        nvml = self._cards[0].nvml
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
            samples: list[Sample] = []
            for card in self._cards:
                with suppress(nvml.NVMLError):  # this one does not know that
                    samples.append(((str(card.index),), float(read(card.handle))))
            if samples:
                yield spec, samples
