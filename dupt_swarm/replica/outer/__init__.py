"""Outer optimizers: the replica state and the average contribution give the next replica state.

**Invariant**: equal inputs give equal bits on any hardware. So every step consists of separate
element-wise fp32 multiplications, additions, divisions and square roots, each of which IEEE 754
rounds exactly, in a fixed order; no ``alpha=``, no ``addcmul``, no fused kernel, no reduction. And
it works in place: new memory would take longer than the arithmetic.

nesterov        SGD with Nesterov momentum, for `diloco`
adamw           AdamW, for `gradient`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.outer.adamw import AdamW
from dupt_swarm.replica.outer.nesterov import Nesterov
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


def build_outer(manifest: Manifest) -> OuterOptimizer:
    """The outer optimizer that the manifest names."""
    optimizers: dict[str, Callable[[Manifest], OuterOptimizer]] = {"nesterov": Nesterov, "adamw": AdamW}
    return optimizers[manifest.outer.optimizer](manifest)
