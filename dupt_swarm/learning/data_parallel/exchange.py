"""Parameters to all devices, gradients to the first: gloo between CPUs, NCCL between NVIDIA's GPUs.

Parameters go out anew for each step, so workers need know nothing of what else changes them: the optimizer,
rounds, checkpoints. Together that is at most twice what an all-reduce of the gradients moves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
PATIENCE = timedelta(minutes=2)  # all have said that they are there before anything is exchanged
HOST = "127.0.0.1"

Store = Any  # of PyTorch's, which does not export its name


def open_store() -> Store:
    """By which workers of this machine find each other, at a port that is free."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        HOST, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE
    )


def find_store(port: int) -> Store:
    """The same, from another process."""
    return dist.TCPStore(  # type: ignore[attr-defined]
        HOST, port, is_master=False, timeout=PATIENCE
    )


def join(store: Store, rank: int, size: int, kind: str) -> None:
    """Meet the others, whose devices are of this kind; returns when all are there."""
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, loopback)
    dist.init_process_group(BACKENDS[kind], store=store, rank=rank, world_size=size, timeout=PATIENCE)


def leave() -> None:
    """Forget the others."""
    if dist.is_initialized():
        dist.destroy_process_group()


@torch.no_grad()
def broadcast(parameters: Sequence[nn.Parameter]) -> None:
    """All have the values of the first's parameters."""
    _wait([dist.broadcast(parameter.data, 0, async_op=True) for parameter in parameters])


@torch.no_grad()
def reduce(parameters: Sequence[nn.Parameter]) -> None:
    """The first has the sum of all gradients."""
    under_way = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        under_way.append(dist.reduce(parameter.grad, 0, async_op=True))
    _wait(under_way)


def _wait(under_way: Sequence[dist.Work | None]) -> None:
    for work in under_way:
        assert work is not None
        work.wait()
