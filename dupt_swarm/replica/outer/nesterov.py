"""SGD with Nesterov momentum, the outer optimizer of DiLoCo (Douillard et al. 2023, algorithm 1)."""

from __future__ import annotations

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.schedule.learning_rate import outer_learning_rate


class Nesterov:
    """v ← μ·v + g;  θ ← θ − η·(g + μ·v). With μ = 0 it is plain SGD and needs no buffer."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._momentum = manifest.outer.momentum

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """``velocity``, if there is momentum."""
        return ("velocity",) if self._momentum else ()

    def step(self, state: ReplicaState, average: Tensor, tokens: int) -> ReplicaState:
        """The next state; see `OuterOptimizer`."""
        rate = outer_learning_rate(self._manifest, state.round)
        buffers = {}
        update = average
        if self._momentum:
            velocity = state.buffers["velocity"] * self._momentum
            velocity += average
            buffers["velocity"] = velocity
            update = velocity * self._momentum
            update += average
        anchor = state.anchor - update * rate
        return ReplicaState(state.round + 1, state.swarm_tokens + tokens, state.layout, anchor, buffers)
