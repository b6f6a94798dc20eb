"""What the trainer and a worker tell each other through their pipe."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from dupt_swarm.learning.batches import Batch


@dataclass(frozen=True)
class Compute:
    """To a worker: take the parameters, and compute gradients with them; it answers.

    Attributes:
        batches: this worker's part of the step.
        examples: of the step, over which the loss is a mean.
        at_once: how many to compute with at most.
        dtype: of products.
        scale: what the loss is multiplied with.
        seed: of dropout.
    """

    batches: list[Batch]
    examples: int
    at_once: int
    dtype: torch.dtype
    scale: float
    seed: int


@dataclass(frozen=True)
class Drop:
    """To a worker: nobody wants this step any longer. If it has not answered yet, it does so soon."""


@dataclass(frozen=True)
class Rest:
    """To a worker: leave the device's memory to others until the next step; it answers."""


@dataclass(frozen=True)
class Ready:
    """From a worker: its model is there, or it rests."""


@dataclass(frozen=True)
class Done:
    """From a worker: its gradients are in the area.

    Attributes:
        loss: its part of the mean, nats.
        remark: what the peer's owner should know; mostly empty.
    """

    loss: float
    remark: str = ""


@dataclass(frozen=True)
class Failed:
    """From a worker: it has not computed the gradients.

    Attributes:
        reason: in a line; empty: it was told to drop the step.
        of_memory: whether there was too little memory.
    """

    reason: str = ""
    of_memory: bool = False


Order = Compute | Drop | Rest
Answer = Ready | Done | Failed


def send(pipe: Connection, message: Any) -> None:
    """Tensors go along by value: PyTorch would have `Connection.send` share their memory instead."""
    pipe.send_bytes(pickle.dumps(message))


def receive(pipe: Connection) -> Any:
    """Wait for the next message; whoever sends them is this program."""
    return pickle.loads(pipe.recv_bytes())
