"""The largest replica state that a joiner accepts, before it has a state to compare with."""

from __future__ import annotations

from dupt_swarm.manifest import Manifest

GENEROUS_RATIO = 16
GENEROUS_NUMEL = 1 << 28


def numel_max(manifest: Manifest) -> int:
    """The largest number of weights in a state of this swarm, so that a joiner's memory is bounded.

    Generous, since a swarm may train any module under the manifest (see `CollaborativeOptimizer`):
    16 times the manifest's GPT, and 268 million weights in any case.
    """
    return max(GENEROUS_RATIO * manifest.model.numel, GENEROUS_NUMEL)
