"""The state of round 0."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.replica.outer import build_outer
from dupt_swarm.replica.state import ReplicaState


def first_state(manifest: Manifest, parameters: Sequence[Tensor]) -> ReplicaState:
    """The state with which a swarm of ``manifest`` begins whose model has these ``parameters``."""
    return ReplicaState.initial(parameters, build_outer(manifest).buffer_names)
