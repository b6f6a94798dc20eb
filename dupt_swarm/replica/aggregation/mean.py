"""The weighted mean of bounded contributions."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded


class Mean:
    """Σ wᵢ·xᵢ / Σ wᵢ, each xᵢ clipped to the median norm."""

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        return bounded.combined(bounded.shares)
