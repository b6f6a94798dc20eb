"""Memory for vectors that are made anew in each round, such as those of a replica state."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import torch
from torch import Tensor


class VectorPool:
    """Gives the memory of a vector to another as soon as nobody refers to the one before.

    New memory costs more than a pass over it: the kernel fills it with zeros, page by page, and takes as
    long again to get it back.
    """

    def __init__(self, spare: int) -> None:
        """``spare``: how many vectors to keep that nobody refers to."""
        self._spare = spare
        self._free: list[np.ndarray] = []

    def empty(self, numel: int) -> Tensor:
        """A vector whose values are undefined, fp32 ``[numel]``."""
        found = self._pop()
        if found is None:
            # A round that has ended and its tasks refer to one another, until Python looks for such cycles.
            gc.collect()
            found = self._pop()
        return self._lend(self._new(numel) if found is None or found.size != numel else found)

    def _pop(self) -> np.ndarray | None:
        try:
            return self._free.pop()
        except IndexError:  # looking first would not help: other threads take vectors too
            return None

    def _lend(self, memory: np.ndarray) -> Tensor:
        lent = memory[:]  # tensors and views of it keep this object, and nothing else does
        weakref.finalize(lent, self._take_back, memory).atexit = False
        return torch.from_numpy(lent)

    def _new(self, numel: int) -> np.ndarray:
        # Not np.empty: NumPy asks for huge pages, and the kernel takes long to put them together.
        return torch.empty(numel).numpy()

    def _take_back(self, memory: np.ndarray) -> None:
        if len(self._free) < self._spare:
            self._free.append(memory)
