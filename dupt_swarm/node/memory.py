"""Memory that the trainer and its node share.

It has no name: it is a file descriptor handed down to the child, so nothing is left in /dev/shm
whichever process dies in whatever way, and a container's small /dev/shm does not matter. The trainer
holds it, so a node that is started again finds its replica state there.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
from collections.abc import Sequence

import torch
from torch import Tensor

from dupt_swarm.replica.state import Layout, ReplicaState, count_values

_NAME_BYTES = 4096
# Beyond 4 bytes per value, fp32's: what a codec puts before a few values, and the rest of their block.
_SPARE_BYTES = 4096


class SharedMemory:
    """An encoded contribution, written by the trainer, and a replica state, written by the node.

    Neither is locked: the trainer writes before it asks for a round, the node before it answers.

    Attributes:
        contribution: bytes, with room for any encoding; what is not used takes no memory.
        anchor: of the replica state, fp32 ``[numel]``.
    """

    def __init__(self, fd: int, layout: Layout, buffer_names: Sequence[str]) -> None:
        """Map the file, and make it large enough.

        Args:
            fd: from `anonymous_file`.
            layout: shapes of the parameters.
            buffer_names: of the outer optimizer.
        """
        numel = count_values(layout)
        rows = 1 + len(buffer_names)
        contribution = _NAME_BYTES + 4 * rows * numel
        size = contribution + 4 * numel + _SPARE_BYTES
        os.ftruncate(fd, size)
        self._layout, self._buffer_names = layout, sorted(buffer_names)
        self._memory = mmap.mmap(fd, size)
        values = torch.frombuffer(
            self._memory, dtype=torch.float32, count=rows * numel, offset=_NAME_BYTES
        ).view(rows, numel)
        self.anchor: Tensor = values[0]
        self._buffers = dict(zip(self._buffer_names, values[1:], strict=True))
        self.contribution = memoryview(self._memory)[contribution:]

    def store(self, state: ReplicaState) -> None:
        """Copy ``state`` into the memory; its name comes last, so that half a state has none."""
        self._memory[:_NAME_BYTES] = bytes(_NAME_BYTES)
        self.anchor.copy_(state.anchor)
        for key, buffer in self._buffers.items():
            buffer.copy_(state.buffers[key])
        name = json.dumps([state.round, state.swarm_tokens, state.digest]).encode()
        self._memory[: len(name)] = name

    def load(self) -> ReplicaState | None:
        """A copy of the state in the memory; None if it is not whole, as after a death while storing."""
        name = self._memory[:_NAME_BYTES].rstrip(b"\0")
        if not name:
            return None
        round, swarm_tokens, digest = json.loads(name)
        buffers = {key: buffer.clone() for key, buffer in self._buffers.items()}
        state = ReplicaState(round, swarm_tokens, self._layout, self.anchor.clone(), buffers)
        return state if state.digest == digest else None


def anonymous_file() -> int:
    """A file descriptor of an empty file without a name; pass it to the child, then close it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dupt")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
