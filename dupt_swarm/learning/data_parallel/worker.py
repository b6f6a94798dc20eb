"""A process that computes gradients: ``python -m dupt_swarm.learning.data_parallel.worker``.

It is started by `workers.Workers`, and ends when the pipe to that closes, however that process ended.
"""

from __future__ import annotations

import contextlib
import sys
from multiprocessing.connection import Connection

import torch
from torch import nn

from dupt_swarm.errors import DuptError
from dupt_swarm.learning.batches import count_examples, pieces
from dupt_swarm.learning.data_parallel import exchange
from dupt_swarm.learning.data_parallel.orders import (
    Answer,
    Compute,
    Done,
    Drop,
    Failed,
    Join,
    Ready,
    Reduce,
    Rest,
    receive,
    send,
)
from dupt_swarm.learning.device import (
    autocast,
    choose_device,
    free_memory,
    is_out_of_memory,
    limit_memory,
    maybe_compile,
    run_as_written,
    shortly,
)
from dupt_swarm.learning.objectives import build_model
from dupt_swarm.manifest import Manifest


class Worker:
    """The model on one device, and the pipe to the trainer."""

    def __init__(self, pipe: Connection, model: nn.Module, device: torch.device, rank: int) -> None:
        """``rank``: 1 or more; the trainer has 0."""
        self._pipe, self._model, self._device, self._rank = pipe, model, device, rank
        self._parameters = list(model.parameters())

    def serve(self, size: int) -> None:
        """Do what the trainer says, until its pipe closes; there are ``size`` of us with it.

        Raises:
            EOFError: it has closed.
        """
        send(self._pipe, Ready())
        while True:
            match receive(self._pipe):
                case Join(port):
                    exchange.join(exchange.find_store(port), self._rank, size, self._device.type)
                case Compute() as order:
                    self._model.to(self._device)
                    exchange.broadcast(self._parameters)
                    send(self._pipe, self._compute(order))
                case Reduce():
                    exchange.reduce(self._parameters)
                    self._model.zero_grad(set_to_none=True)
                case Drop():
                    self._model.zero_grad(set_to_none=True)
                case Rest():
                    self._model.to("cpu")
                    free_memory(self._device)
                    send(self._pipe, Ready())

    def _compute(self, order: Compute) -> Answer:
        while True:
            torch.manual_seed(order.seed + self._rank)
            try:
                return self._accumulate(order)
            except Exception as error:
                self._model.zero_grad(set_to_none=True)
                of_memory = is_out_of_memory(error)
                if of_memory or not run_as_written(self._model):
                    free_memory(self._device)
                    return Failed(shortly(error), of_memory)

    def _accumulate(self, order: Compute) -> Answer:
        """Gradients of this worker's part of the mean loss, as `Trainer` computes its own."""
        self._model.train()
        loss = torch.zeros((), device=self._device)
        for piece in pieces(order.batches, order.at_once):
            if self._pipe.poll():  # only one order comes before the answer
                assert isinstance(receive(self._pipe), Drop)
                self._model.zero_grad(set_to_none=True)
                return Failed()
            with autocast(self._device, order.dtype):
                here = (tensor.to(self._device, non_blocking=True) for tensor in piece)
                part = self._model(*here) * (count_examples(piece) / order.examples)
            (part * order.scale).backward()
            loss += part.detach()
        return Done(float(loss))


def main() -> None:
    """``worker.py FD RANK SIZE DEVICE THREADS COMPILE MEMORY``; the first message is the manifest."""
    descriptor, rank, size, name, threads, compiled, memory = sys.argv[1:]
    pipe = Connection(int(descriptor))
    with contextlib.suppress(EOFError, OSError):
        try:
            manifest = Manifest.model_validate_json(receive(pipe))
            torch.set_num_threads(int(threads))
            device = choose_device(name)
            limit_memory(device, float(memory))
            model = build_model(manifest).to(device)
            maybe_compile(model, device, {"": None, "0": False, "1": True}[compiled])
        except (DuptError, MemoryError, RuntimeError) as error:
            send(pipe, Failed(shortly(error)))
            return
        Worker(pipe, model, device, int(rank)).serve(int(size))
    exchange.leave()


if __name__ == "__main__":
    main()
