"""A process that computes gradients: ``python -m dupt_swarm.learning.data_parallel.worker``.

It is started by `workers.Workers`, and ends when the pipe to that closes, however that process ended.
"""

from __future__ import annotations

import contextlib
import sys
from multiprocessing.connection import Connection

import torch
from torch import nn

from dupt_swarm.learning.activation_checkpointing import checkpoint_activations
from dupt_swarm.learning.batches import count_examples, pieces
from dupt_swarm.learning.data_parallel.area import Area, gradients
from dupt_swarm.learning.data_parallel.orders import (
    Answer,
    Compute,
    Done,
    Drop,
    Failed,
    Ready,
    Rest,
    receive,
    send,
)
from dupt_swarm.learning.device import (
    NOT_COMPILED,
    autocast,
    choose_device,
    free_memory,
    is_out_of_memory,
    limit_memory,
    maybe_compile,
    on,
    run_as_written,
    shortly,
)
from dupt_swarm.learning.objectives import build_model


class Worker:
    """The model on one device, and the pipe to the trainer."""

    def __init__(self, pipe: Connection, model: nn.Module, device: torch.device, fd: int) -> None:
        """``fd`` is of the `Area` that it shares with the trainer."""
        self._pipe, self._model, self._device, self._remark = pipe, model, device, ""
        self._parameters = list(model.parameters())
        self._area = Area(fd, sum(parameter.numel() for parameter in self._parameters), device)

    def serve(self) -> None:
        """Do what the trainer says, until its pipe closes.

        Raises:
            EOFError: it has closed.
        """
        send(self._pipe, Ready())
        while True:
            match receive(self._pipe):
                case Compute() as order:
                    answer = self._compute(order)
                    self._model.zero_grad(set_to_none=True)
                    send(self._pipe, answer)
                case Drop():
                    pass  # the answer was on its way
                case Rest():
                    self._model.to("cpu")
                    free_memory(self._device)
                    send(self._pipe, Ready())

    def _compute(self, order: Compute) -> Answer:
        while True:
            try:
                self._model.to(self._device)
                self._area.copy_to(self._parameters)
                torch.manual_seed(order.seed)
                return self._accumulate(order)
            except (EOFError, OSError):
                raise
            except Exception as error:
                self._model.zero_grad(set_to_none=True)
                of_memory = is_out_of_memory(error)
                if of_memory:
                    free_memory(self._device)
                if of_memory or not run_as_written(self._model):
                    return Failed(shortly(error), of_memory)
                self._remark = f"{NOT_COMPILED}: {shortly(error)}"

    def _accumulate(self, order: Compute) -> Answer:
        """Gradients of this worker's part of the mean loss, as `Trainer` computes its own."""
        self._model.train()
        loss = torch.zeros((), device=self._device)
        for piece in pieces(order.batches, order.at_once):
            if self._pipe.poll():  # no other order comes before the answer
                assert isinstance(receive(self._pipe), Drop)
                return Failed()
            with autocast(self._device, order.dtype):
                here = (on(self._device, tensor) for tensor in piece)
                part = self._model(*here) * (count_examples(piece) / order.examples)
            (part * order.scale).backward()
            loss += part.detach()
        self._area.put(gradients(self._parameters))
        remark, self._remark = self._remark, ""
        return Done(float(loss), remark)


def main() -> None:
    """``worker.py PIPE AREA DEVICE``; the first message is what `Workers` was told."""
    descriptor, area, name = sys.argv[1:]
    pipe = Connection(int(descriptor))
    with contextlib.suppress(EOFError, OSError):
        try:
            manifest, threads, compiled, gpu_memory, checkpointing = receive(pipe)
            torch.set_num_threads(threads)
            device = choose_device(name)
            limit_memory(device, gpu_memory)
            model = build_model(manifest).to(device)
            checkpoint_activations(model, wanted=checkpointing)
            maybe_compile(model, device, compiled)
            Worker(pipe, model, device, int(area)).serve()
        except (EOFError, OSError):
            raise
        except Exception as error:  # whatever a driver may do; the trainer shows it
            send(pipe, Failed(shortly(error)))


if __name__ == "__main__":
    main()
