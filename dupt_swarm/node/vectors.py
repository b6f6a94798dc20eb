"""Vectors in a file that two processes map: the node writes them, the trainer reads some."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.replica.pool import VectorPool


class SharedVectors(VectorPool):
    """A `VectorPool` whose vectors lie in a file, each at a place with a number, from 0.

    The file grows as they are needed. One process, the node, makes and writes vectors; another may read
    those whose numbers it is told. What is in a file that was there before is left alone until `reclaim`.
    """

    def __init__(self, fd: int, offset: int, numel: int) -> None:
        """Use a file from ``offset`` on, a multiple of a page.

        Args:
            fd: of the file.
            offset: bytes before the first vector.
            numel: values of each vector.
        """
        super().__init__(spare=sys.maxsize)  # until `trim`
        self._fd, self._offset, self._numel = fd, offset, numel
        self._bytes = -(-4 * numel // mmap.PAGESIZE) * mmap.PAGESIZE
        self._parts: dict[int, mmap.mmap] = {}  # by number
        self._vectors: dict[int, np.ndarray] = {}  # the same as arrays
        self._known: set[int] = set()  # those that this process has lent, ever
        self._hollow: list[np.ndarray] = []  # free ones that take no memory
        self._numbering = threading.Lock()  # not for what ends with a reference, which may be anywhere

    def at(self, number: int) -> Tensor:
        """Vector ``number``, fp32 ``[numel]``; the caller knows that it is not used for another."""
        return torch.from_numpy(self._map(number))

    def keep(self, number: int) -> Tensor:
        """Vector ``number`` as if `empty` had given it: what a process before this one left there."""
        with self._numbering:
            self._known.add(number)
        return self._lend(self._map(number))

    def __contains__(self, vector: Tensor) -> bool:
        return vector.data_ptr() in self._places

    def number(self, vector: Tensor) -> int:
        """Where a vector of this file lies.

        Raises:
            KeyError: it is none.
        """
        return self._places[vector.data_ptr()]

    def reclaim(self) -> None:
        """Nobody uses any longer what a process before this one left, but for what was kept."""
        with self._numbering:
            left = set(range(self._count)) - self._known
            self._known |= left
        for number in left:
            self._take_back(self._map(number))

    def trim(self, spare: int) -> None:
        """Give the memory of free vectors back, but for that of ``spare`` ones; it takes a while."""
        with contextlib.suppress(IndexError):  # somebody else took the last one
            while len(self._free) > spare and hasattr(mmap, "MADV_REMOVE"):
                memory = self._free.pop(0)
                self._parts[self._places[memory.ctypes.data]].madvise(mmap.MADV_REMOVE)
                self._hollow.append(memory)

    @property
    def _places(self) -> dict[int, int]:
        """Numbers by address."""
        return {memory.ctypes.data: number for number, memory in list(self._vectors.items())}

    @property
    def _count(self) -> int:
        return max(0, os.fstat(self._fd).st_size - self._offset) // self._bytes

    def _map(self, number: int) -> np.ndarray:
        if number not in self._vectors:
            part = mmap.mmap(self._fd, self._bytes, offset=self._offset + number * self._bytes)
            self._parts[number], self._vectors[number] = part, np.frombuffer(part, np.float32, self._numel)
        return self._vectors[number]

    def _new(self, numel: int) -> np.ndarray:
        assert numel == self._numel
        with contextlib.suppress(IndexError):
            return self._hollow.pop()
        with self._numbering:
            number = self._count
            os.ftruncate(self._fd, self._offset + (number + 1) * self._bytes)
            self._known.add(number)
        return self._map(number)
