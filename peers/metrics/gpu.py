"""What the driver reports about the GPUs that a peer trains on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING

from dupt_swarm.metrics import peer as names
from dupt_swarm.metrics.spec import MetricSpec, Sample

if TYPE_CHECKING:
    from dupt_swarm.learning.driver import Card

# By the methods' names: the module of `Card` loads PyTorch.
READINGS = {
    names.GPU_UTILIZATION: methodcaller("utilization"),
    names.GPU_MEMORY_USED: methodcaller("used_bytes"),
    names.GPU_MEMORY_TOTAL: methodcaller("total_bytes"),
    names.GPU_TEMPERATURE: methodcaller("temperature"),
    names.GPU_ENERGY: methodcaller("energy"),
}


def cards_among(devices: str) -> Sequence[Card]:
    """The NVIDIA GPUs among ``devices``; for what these are see `several_devices`."""
    if not devices.startswith("cuda"):
        return []  # without loading PyTorch
    from dupt_swarm.learning.device import several_devices
    from dupt_swarm.learning.driver import cards_of

    return cards_of(several_devices(devices))


def samples_of(cards: Sequence[Card]) -> Iterator[tuple[MetricSpec, list[Sample]]]:
    """What can be read of the cards now; not every GPU knows everything, nor the driver every GPU."""
    for spec, read in READINGS.items():
        found = [(card, read(card)) for card in cards]
        samples: list[Sample] = [((str(card.index),), value) for card, value in found if value is not None]
        if samples:
            yield spec, samples
