"""Two vectors in memory that the trainer and its node share.

The memory has no name: it is a file descriptor handed down to the child, so nothing is left in
/dev/shm whichever process dies in whatever way, and a container's small /dev/shm does not matter.
"""

from __future__ import annotations

import mmap
import os
import tempfile

import torch
from torch import Tensor


class SharedVectors:
    """``contribution``, written by the trainer, and ``anchor``, written by the node; fp32 ``[numel]``.

    Neither is locked: the trainer writes before it asks for a round, the node before it answers.
    """

    def __init__(self, fd: int, numel: int) -> None:
        os.ftruncate(fd, max(8 * numel, 1))
        self._memory = mmap.mmap(fd, max(8 * numel, 1))
        vectors = torch.frombuffer(self._memory, dtype=torch.float32, count=2 * numel)
        self.contribution: Tensor = vectors[:numel]
        self.anchor: Tensor = vectors[numel:]


def anonymous_file() -> int:
    """A file descriptor of an empty file without a name; pass it to the child, then close it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("dupt")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
