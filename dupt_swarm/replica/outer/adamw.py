"""AdamW as an outer optimizer (Loshchilov & Hutter 2019, algorithm 2); weight decay on matrices only."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.state import Layout, ReplicaState
from dupt_swarm.schedule.learning_rate import outer_learning_rate
from dupt_swarm.schedule.reproducible import power


class AdamW:
    """m ← β1·m + (1−β1)·g;  v ← β2·v + (1−β2)·g²;  θ ← θ − η·λ·θ − η·m̂ / (√v̂ + ε)."""

    buffer_names = ("mean", "variance")

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._outer = manifest.outer

    def step(self, state: ReplicaState, average: Tensor, tokens: int) -> ReplicaState:
        """The next state; see `OuterOptimizer`."""
        outer, steps = self._outer, state.round + 1
        rate = outer_learning_rate(self._manifest, state.round)
        mean = state.buffers["mean"] * outer.beta1
        mean += average * (1 - outer.beta1)
        variance = state.buffers["variance"] * outer.beta2
        variance += (average * average) * (1 - outer.beta2)

        # Not torch.sqrt: on x86 that is MKL's, which is off by one bit for a third of all inputs.
        corrected = variance / (1 - power(outer.beta2, steps))
        denominator = torch.from_numpy(np.sqrt(corrected.numpy()))
        denominator += outer.epsilon
        update = mean / (1 - power(outer.beta1, steps))
        update /= denominator
        anchor = state.anchor - update * rate
        if outer.weight_decay:
            _decay_matrices(anchor, state.anchor, rate * outer.weight_decay, state.layout)
        buffers = {"mean": mean, "variance": variance}
        return ReplicaState(state.round + 1, state.swarm_tokens + tokens, state.layout, anchor, buffers)


def _decay_matrices(anchor: Tensor, previous: Tensor, factor: float, layout: Layout) -> None:
    start = 0
    for shape in layout:
        end = start + math.prod(shape)
        if len(shape) >= 2:
            anchor[start:end] -= previous[start:end] * factor
        start = end
