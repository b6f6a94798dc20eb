"""SGD with Nesterov momentum, the outer optimizer of DiLoCo (Douillard et al. 2023, algorithm 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import outer_learning_rate
from dupt_swarm.replica.state import ReplicaState


class Nesterov:
    """v ← μ·v + g;  θ ← θ − η·(g + μ·v). With μ = 0 it is plain SGD and needs no buffer."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._momentum = manifest.outer.momentum

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """``velocity``, if there is momentum."""
        return ("velocity",) if self._momentum else ()

    def step(self, before: ReplicaState, after: ReplicaState, place: slice, average: Tensor) -> None:
        """See `OuterOptimizer`."""
        update = average
        if self._momentum:
            velocity = after.buffers["velocity"][place]
            torch.mul(before.buffers["velocity"][place], self._momentum, out=velocity)
            velocity += average
            update = torch.mul(velocity, self._momentum, out=after.anchor[place])
            update += average
        update *= outer_learning_rate(self._manifest, before.round)
        torch.sub(before.anchor[place], update, out=after.anchor[place])
