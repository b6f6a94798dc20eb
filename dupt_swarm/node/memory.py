"""Memory that the trainer and its node share.

It is a file descriptor handed down to the child. The trainer holds it, so a node that is started again finds
its replica state there.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable

from torch import Tensor

from dupt_swarm.manifest.layout import Layout, count_values
from dupt_swarm.node.vectors import SharedVectors
from dupt_swarm.replica.electorate import ROWS_MAX, Electorate
from dupt_swarm.replica.state import ReplicaState

_NAME_BYTES = 4096 + 128 * ROWS_MAX
# Beyond 4 bytes per value, fp32's: what a codec puts before a few values, and the rest of their block.
_SPARE_BYTES = 4096


class SharedMemory:
    """An encoded contribution, written by the trainer, and replica states, written by the node.

    Nothing is locked. The trainer writes before it asks for a round. The node computes a state where no
    other is, and tells the trainer its place; the one that the trainer is at stays as it is meanwhile. The
    name is for the node that follows, and for nobody else: it may be half written.

    Attributes:
        contribution: bytes, with room for any encoding; what is not used takes no memory.
        vectors: of replica states; those of the state that is named are never written again while it is.
    """

    def __init__(self, fd: int, layout: Layout) -> None:
        """Map the file, and make it large enough.

        Args:
            fd: from `anonymous_file`.
            layout: shapes of the parameters.
        """
        numel = count_values(layout)
        size = -(-(_NAME_BYTES + 4 * numel + _SPARE_BYTES) // mmap.ALLOCATIONGRANULARITY)
        size *= mmap.ALLOCATIONGRANULARITY
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self._layout = layout
        self._memory = mmap.mmap(fd, size)
        self.contribution = memoryview(self._memory)[_NAME_BYTES:]
        self.vectors = SharedVectors(fd, size, numel)

    def name(self, state: ReplicaState) -> None:
        """From now on ``state`` is the one that is here; its tensors are of `vectors`."""
        anchor = self.vectors.number(state.anchor)
        buffers = {name: self.vectors.number(each) for name, each in state.buffers.items()}
        electorate = state.electorate.to_json()
        named = [state.round, state.swarm_tokens, state.digest, electorate, anchor, buffers]
        self._memory[:_NAME_BYTES] = json.dumps(named).encode().ljust(_NAME_BYTES, b"\0")

    def load(self) -> ReplicaState | None:
        """The state that is here; None if it is not whole: then its memory is left alone."""
        named = self._named()
        if named is None:
            return None
        round, swarm_tokens, digest, electorate, anchor, numbers = named

        def state_in(vector: Callable[[int], Tensor]) -> ReplicaState:
            buffers = {name: vector(number) for name, number in numbers.items()}
            return ReplicaState(round, swarm_tokens, self._layout, vector(anchor), buffers, electorate)

        seen = state_in(self.vectors.at)
        if seen.digest != digest:
            return None
        return state_in(self.vectors.keep).hashed(seen.blob.index.chunk_sha256)

    def _named(self) -> tuple[int, int, str, Electorate, int, dict[str, int]] | None:
        """What the first bytes say; None: nothing, or a process died while it wrote there."""
        try:
            named = json.loads(self._memory[:_NAME_BYTES].rstrip(b"\0"))
            round, swarm_tokens, digest, electorate, *numbers = named
            return round, swarm_tokens, digest, Electorate.parse(round, electorate), *numbers
        except ValueError:
            return None
