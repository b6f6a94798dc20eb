"""The memory that a trainer and its node share, as a test fills it."""

from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.replica.state import ReplicaState


def leave(memory: SharedMemory, state: ReplicaState) -> ReplicaState:
    """Put ``state`` there as a node does; it stays as long as the result, which is the same state."""
    copy = state.copied(memory.vectors.empty)
    memory.name(copy)
    return copy
