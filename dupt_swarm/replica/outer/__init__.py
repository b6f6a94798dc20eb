"""Outer optimizers: the replica state and the average contribution give the next replica state.

**Invariant**: equal inputs give equal bits on any hardware. So every step consists of separate
element-wise fp32 multiplications, additions, divisions and square roots, each of which IEEE 754
rounds exactly, in a fixed order; no ``alpha=``, no ``addcmul``, no fused kernel, no reduction.

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
    """Turns an average contribution into the next replica state."""

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """The names of the buffers in a replica state of this optimizer."""

    def step(self, state: ReplicaState, average: Tensor, tokens: int) -> ReplicaState:
        """The state after a round whose mean contribution is ``average`` ``[numel]``, from ``tokens``."""


def build_outer(manifest: Manifest) -> OuterOptimizer:
    """The outer optimizer that the manifest names."""
    optimizers: dict[str, Callable[[Manifest], OuterOptimizer]] = {"nesterov": Nesterov, "adamw": AdamW}
    return optimizers[manifest.outer.optimizer](manifest)
