"""Outer optimizers: the replica state and the average contribution give the next replica state.

**Invariant**: equal inputs give equal bits on any hardware. So every step consists of separate
element-wise fp32 multiplications, additions, divisions and square roots, each of which IEEE 754
rounds exactly, in a fixed order; no ``alpha=``, no ``addcmul``, no fused kernel, no reduction. And
it works in place: new memory would take longer than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.learning_rate import outer_learning_rate
from dupt_swarm.manifest.schedule import power
from dupt_swarm.replica.state import ReplicaState


class OuterOptimizer(Protocol):
    """Turns an average contribution into the next replica state, any part of it at a time."""

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """The names of the buffers in a replica state of this optimizer."""

    def step(self, before: ReplicaState, after: ReplicaState, place: slice, average: Tensor) -> None:
        """Write the values of ``after`` at ``place``, in anchor and buffers.

        Args:
            before: the state before the round.
            after: the one that follows; of the same form.
            place: which values.
            average: the mean contribution to them, fp32 ``[n]``; it is used up.
        """


class Nesterov:
    """SGD with Nesterov momentum, for `diloco` (Douillard et al. 2023, algorithm 1).

    v ← μ·v + g;  θ ← θ − η·(g + μ·v). With μ = 0 it is plain SGD and needs no buffer.
    """

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


class AdamW:
    """AdamW, for `gradient` (Loshchilov & Hutter 2019, algorithm 2); weight decay on matrices only.

    m ← β1·m + (1−β1)·g;  v ← β2·v + (1−β2)·g²;  θ ← θ − η·λ·θ − η·m̂ / (√v̂ + ε).
    """

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


def build_outer(manifest: Manifest) -> OuterOptimizer:
    """The outer optimizer that the manifest names."""
    optimizers: dict[str, Callable[[Manifest], OuterOptimizer]] = {"nesterov": Nesterov, "adamw": AdamW}
    return optimizers[manifest.outer.optimizer](manifest)


def _decay_matrices(before: ReplicaState, after: ReplicaState, place: slice, factor: float) -> None:
    end = 0
    for shape in before.layout:
        start, end = end, end + math.prod(shape)
        both = slice(max(start, place.start), min(end, place.stop))
        if len(shape) >= 2 and both.start < both.stop:
            after.anchor[both] -= before.anchor[both] * factor
