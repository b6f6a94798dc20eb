"""The processes that compute gradients on other devices than the trainer's, as it sees them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch
from torch import Tensor, nn

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.batches import Batch
from dupt_swarm.learning.cores import usable_cores
from dupt_swarm.learning.data_parallel import exchange
from dupt_swarm.learning.data_parallel.orders import (
    Answer,
    Compute,
    Done,
    Drop,
    Failed,
    Join,
    Order,
    Reduce,
    Rest,
    receive,
    send,
)
from dupt_swarm.learning.device import is_out_of_memory, shortly
from dupt_swarm.manifest import Manifest

JoinLosses = Callable[[Tensor], Tensor]
SEEDS = 1 << 62
END_SECONDS, MOMENT_SECONDS = 5.0, 1.0


class Workers:
    """None or several; one process has them at a time.

    Attributes:
        devices: how many compute a step, with the trainer's own.
    """

    def __init__(
        self,
        model: nn.Module,
        manifest: Manifest | None = None,
        others: Sequence[torch.device] = (),
        compiled: bool | None = None,
        gpu_memory: float = 1.0,
    ) -> None:
        """Start one for each other device, and wait until they are there.

        Args:
            model: the trainer's.
            manifest: of what it was built from.
            others: without the trainer's.
            compiled: see `maybe_compile`.
            gpu_memory: see `limit_memory`.

        Raises:
            DeviceError: a device cannot be used.
        """
        self.devices, self._met = 1 + len(others), False
        self._parameters = list(model.parameters())
        threads = max(1, usable_cores() // self.devices)
        about = (str(threads), "" if compiled is None else str(int(compiled)), str(gpu_memory))
        self._all = [
            _Worker(rank, self.devices, device, about) for rank, device in enumerate(others, start=1)
        ]
        if not self._all:
            return
        assert manifest is not None
        try:
            for worker in self._all:
                worker.begin(manifest)
            self._meet()
        except BaseException:
            self.close()
            raise

    def deal(self, batch: Batch) -> list[Batch]:
        """The part of each device, the trainer's first: as even as can be, and of few examples maybe none."""
        own, *others = zip(*(torch.tensor_split(tensor, self.devices) for tensor in batch), strict=True)
        return [own, *(tuple(tensor.clone() for tensor in part) for part in others)]  # not the whole batch

    @contextmanager
    def computing(
        self, shares: Sequence[list[Batch]], examples: int, at_once: int, dtype: torch.dtype, scale: float
    ) -> Iterator[JoinLosses]:
        """Inside, each worker computes gradients of its share of a step.

        Args:
            shares: of each worker.
            examples: of the whole step.
            at_once: how many to compute with at most.
            dtype: of products.
            scale: what the loss is multiplied with.

        Yields:
            What to call with the trainer's own loss when it has its gradients: theirs come to those, and
            the loss of all is returned. Without that call nothing has happened.

        Raises:
            MemoryError: in that call; a device has not enough.
            DeviceError: a worker has ended, or cannot compute this.
        """
        joined = False

        def join(loss: Tensor) -> Tensor:
            nonlocal joined
            answers = [worker.answer() for worker in self._all]
            for worker, answer in zip(self._all, answers, strict=True):
                if isinstance(answer, Failed):
                    text = f"{worker.device}: {answer.reason}"
                    raise (
                        MemoryError(text)
                        if answer.of_memory
                        else DeviceError(f"{text}; leave this device out")
                    )
            for worker in self._all:
                worker.tell(Reduce())
            with self._exchanging():
                exchange.reduce(self._parameters)
            joined = True
            return loss + sum(answer.loss for answer in answers if isinstance(answer, Done))

        if not self._all:
            yield lambda loss: loss
            return
        seed = int(torch.randint(SEEDS, ()))
        for worker, batches in zip(self._all, shares, strict=True):
            worker.tell(Compute(batches, examples, at_once, dtype, scale, seed))
        with self._exchanging():
            exchange.broadcast(self._parameters)
        try:
            yield join
        finally:
            if not joined:
                for worker in self._all:
                    worker.drop()

    def rest(self) -> None:
        """Leave their devices to others until the next step."""
        for worker in self._all:
            worker.tell(Rest())
        for worker in self._all:
            worker.answer()

    def close(self) -> None:
        """End them."""
        for worker in self._all:
            worker.close()
        if self._met:
            exchange.leave()
        self._all, self.devices, self._met = [], 1, False

    @contextmanager
    def _exchanging(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise MemoryError(shortly(error)) from error
            lost = next((worker.loss() for worker in self._all if worker.has_ended), None)
            raise lost or DeviceError(
                f"the devices have lost each other ({shortly(error)}); start the oracle again"
            ) from error

    def _meet(self) -> None:
        store = exchange.open_store()
        for worker in self._all:
            worker.tell(Join(store.port))
        exchange.join(store, 0, self.devices, self._all[0].device.type)
        self._met = True


class _Worker:
    """One of them, and the pipe to it."""

    def __init__(self, rank: int, size: int, device: torch.device, about: Sequence[str]) -> None:
        self.device = device
        self._pipe, theirs = Pipe()
        self._owes = False  # an answer
        # A group of its own: Ctrl-C is for the trainer.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dupt_swarm.learning.data_parallel.worker"),
                *(str(theirs.fileno()), str(rank), str(size), str(device), *about),
            ],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env=os.environ,
        )
        theirs.close()

    def begin(self, manifest: Manifest) -> None:
        """Wait until it is ready."""
        with self._alive() as pipe:
            send(pipe, manifest.model_dump_json())
        self._owes = True
        answer = self.answer()
        if isinstance(answer, Failed):
            raise DeviceError(f"{self.device}: {answer.reason}; leave this device out")

    def tell(self, order: Order) -> None:
        """Send it an order."""
        with self._alive() as pipe:
            send(pipe, order)
        self._owes = isinstance(order, Compute | Rest)

    def answer(self) -> Answer:
        """Wait for what it says."""
        with self._alive() as pipe:
            found: Answer = receive(pipe)
        self._owes = False
        return found

    def drop(self) -> None:
        """Nobody wants the step; one that has ended is found with the next."""
        with contextlib.suppress(DeviceError):
            owes = self._owes
            self.tell(Drop())
            if owes:
                self.answer()

    @property
    def has_ended(self) -> bool:
        """Whether it has; one that is about to has a moment for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(MOMENT_SECONDS)
        return self._process.returncode is not None

    def loss(self) -> DeviceError:
        """What to raise if it has ended."""
        return DeviceError(
            f"{self.device}: the process that computed there has ended; start the oracle again, or leave "
            "this device out"
        )

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def _alive(self) -> Iterator[Connection]:
        try:
            yield self._pipe
        except (EOFError, OSError) as error:
            raise self.loss() from error
