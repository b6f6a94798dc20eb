"""AdamW as an outer optimizer (Loshchilov & Hutter 2019, algorithm 2); weight decay on matrices only."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import outer_learning_rate
from dupt_swarm.manifest.schedule import power
from dupt_swarm.replica.state import ReplicaState


class AdamW:
    """m ← β1·m + (1−β1)·g;  v ← β2·v + (1−β2)·g²;  θ ← θ − η·λ·θ − η·m̂ / (√v̂ + ε)."""

    buffer_names = ("mean", "variance")

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._outer = manifest.outer

    def step(self, before: ReplicaState, after: ReplicaState, place: slice, average: Tensor) -> None:
        """See `OuterOptimizer`."""
        outer, steps = self._outer, before.round + 1
        rate = outer_learning_rate(self._manifest, before.round)
        mean, variance = (after.buffers[name][place] for name in self.buffer_names)
        update = after.anchor[place]
        torch.mul(before.buffers["mean"][place], outer.beta1, out=mean)
        mean += torch.mul(average, 1 - outer.beta1, out=update)
        torch.mul(before.buffers["variance"][place], outer.beta2, out=variance)
        average *= average
        average *= 1 - outer.beta2
        variance += average

        # Not torch.sqrt: on x86 that is MKL's, which is off by one bit for a third of all inputs.
        denominator = torch.div(variance, 1 - power(outer.beta2, steps), out=average)
        np.sqrt(denominator.numpy(), out=denominator.numpy())
        denominator += outer.epsilon
        torch.div(mean, 1 - power(outer.beta1, steps), out=update)
        update /= denominator
        update *= rate
        torch.sub(before.anchor[place], update, out=after.anchor[place])
        if outer.weight_decay:
            _decay_matrices(before, after, place, rate * outer.weight_decay)


def _decay_matrices(before: ReplicaState, after: ReplicaState, place: slice, factor: float) -> None:
    end = 0
    for shape in before.layout:
        start, end = end, end + math.prod(shape)
        both = slice(max(start, place.start), min(end, place.stop))
        if len(shape) >= 2 and both.start < both.stop:
            after.anchor[both] -= before.anchor[both] * factor
