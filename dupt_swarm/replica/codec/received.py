"""Received bytes as a tensor."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

_memory = threading.local()


def as_tensor(data: bytes | memoryview) -> Tensor:
    """``data`` as uint8, in memory that this thread's next call overwrites.

    PyTorch takes no memory that must not be written to, so bytes are copied. Memory that is new for each
    part would cost more than all that is done with it: the kernel fills it with zeros, page by page.
    """
    held: Tensor | None = getattr(_memory, "held", None)
    if held is None or held.numel() < len(data):
        held = _memory.held = torch.empty(len(data), dtype=torch.uint8)
    place = held[: len(data)]
    place.numpy().data[:] = data
    return place
