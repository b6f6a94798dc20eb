"""The weighted mean of bounded contributions."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.sums import combine


class Mean:
    """Σ wᵢ·xᵢ / Σ wᵢ, each xᵢ clipped to the median norm."""

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """See `Rule`."""
        coefficients = [share * scale for share, scale in zip(bounded.shares, bounded.scales, strict=True)]
        for parts in bounded.parts():
            yield combine(parts, coefficients)
