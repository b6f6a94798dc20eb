"""How large a contribution may be, as far as the manifest tells: known before any corpus is seen.

A bound that followed the norms of an oracle's own contributions would tell something of its corpus.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dupt_swarm.errors import UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import inner_learning_rate


def scale(manifest: Manifest, round: int, numel: int) -> float:
    """The norm that a contribution of ``numel`` values to ``round`` (from 0) hardly exceeds.

    With `diloco`, that of inner steps that all move every value by the learning rate in the same direction.
    With `gradient`, that to which the manifest clips each gradient.

    Raises:
        UsageError: the manifest does not clip gradients.
    """
    return SCALES[manifest.rounds.strategy](manifest, round, numel)


def _way(manifest: Manifest, round: int, numel: int) -> float:
    steps = manifest.tokens_per_round(round) // manifest.rounds.tokens_per_step
    first = manifest.first_update(round)
    rates = (inner_learning_rate(manifest, first + number) for number in range(steps))
    return math.sqrt(numel) * math.fsum(rates)


def _clipped(manifest: Manifest, round: int, numel: int) -> float:
    del round, numel
    if not manifest.inner.clip_norm:
        raise UsageError(
            "this swarm does not clip gradients, so nobody knows how much noise hides one; "
            "train without privacy, or in a swarm whose manifest has inner.clip_norm",
            setting="private",
        )
    return manifest.inner.clip_norm


SCALES: dict[str, Callable[[Manifest, int, int], float]] = {"diloco": _way, "gradient": _clipped}
