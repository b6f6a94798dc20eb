"""Memory that the trainer and a worker share: parameters come through it, and gradients go back.

Nothing is locked: the trainer writes before it gives an order, and the worker before it answers.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from dupt_swarm.learning.device import on, wait_for
from dupt_swarm.learning.strategies.flat import pieces, unflatten


class Area:
    """One fp32 value per weight, in the main memory.

    Beside a GPU it is page-locked, so that the card copies by itself; where that is not possible, PyTorch
    copies once more.
    """

    def __init__(self, fd: int, numel: int, device: torch.device) -> None:
        """``fd``: from `anonymous_file`, which both have; ``device`` is this process's."""
        size = max(4 * numel, mmap.PAGESIZE)
        if os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
        self._values = torch.frombuffer(mmap.mmap(fd, size), dtype=torch.float32, count=numel)
        self._device = device
        if device.type == "cuda":
            torch.cuda.cudart().cudaHostRegister(self._values.data_ptr(), self._values.nbytes, 0)  # type: ignore[no-untyped-call]

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Copy these here; returns when they are."""
        with torch.no_grad():
            for part, room in pieces(tensors, self._values):
                room.copy_(part, non_blocking=self._device.type == "cuda")
        wait_for(self._device)

    def copy_to(self, tensors: Sequence[Tensor]) -> None:
        """Copy what is here into these; what the device does afterwards sees it."""
        unflatten(self._values, tensors)

    def add_to(self, tensors: Sequence[Tensor]) -> None:
        """Add what is here to these; likewise."""
        with torch.no_grad():
            for part, values in pieces(tensors, self._values):
                part.add_(on(part.device, values))

    def close(self) -> None:
        """Unlock the pages; it is not used any longer."""
        if self._device.type == "cuda":
            with contextlib.suppress(RuntimeError):  # a card that is lost; what was said of that goes on
                wait_for(self._device)
                torch.cuda.cudart().cudaHostUnregister(self._values.data_ptr())  # type: ignore[no-untyped-call]


def gradients(parameters: Sequence[torch.nn.Parameter]) -> list[Tensor]:
    """Each parameter's gradient; one that has none gets zeros."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
