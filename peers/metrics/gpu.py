"""What the driver reports about the GPU that a peer trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dupt_swarm.metrics import peer as names
from dupt_swarm.metrics.spec import MetricSpec, Sample


class Gpu:
    """One NVIDIA GPU, by its identifier, so that CUDA_VISIBLE_DEVICES does not confuse it with others."""

    def __init__(self, uuid: str) -> None:
        """Find the GPU ``uuid``; without it, its driver or the library there are no samples."""
        self._nvml: Any = None
        try:
            import pynvml  # not there on every machine

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._labels = (str(pynvml.nvmlDeviceGetIndex(self._handle)),)
            self._nvml = pynvml
        except Exception:
            # No library, no driver, a virtual GPU: each has an error of its own, and none is worth more
            # than a gap in the metrics.
            return

    @classmethod
    def of_device(cls, device: str) -> Gpu | None:
        """The GPU behind a torch device; None if it is not an NVIDIA GPU."""
        if not device.startswith("cuda"):
            return None
        import torch

        uuid = str(torch.cuda.get_device_properties(torch.device(device)).uuid)
        return cls(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")

    def samples(self) -> Iterator[tuple[MetricSpec, list[Sample]]]:
        """What can be read now; not every GPU knows everything."""
        nvml = self._nvml
        if nvml is None:
            return
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
                yield spec, [(self._labels, float(read(self._handle)))]
            except nvml.NVMLError:
                continue  # this one does not know that
