"""The processes that compute gradients on other devices than the trainer's, as it sees them."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch
from torch import Tensor, nn

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.batches import Batch
from dupt_swarm.learning.cores import usable_cores
from dupt_swarm.learning.data_parallel.area import Area, gradients
from dupt_swarm.learning.data_parallel.orders import (
    Answer,
    Compute,
    Done,
    Drop,
    Failed,
    Order,
    Ready,
    Rest,
    receive,
    send,
)
from dupt_swarm.manifest import Manifest

Gather = Callable[[Tensor], Tensor]
SEEDS = 1 << 62
LOOK_SECONDS, MOMENT_SECONDS, END_SECONDS = 0.2, 1.0, 5.0
REMEDY = "start the oracle again, or leave this device out"

logger = logging.getLogger(__name__)


class DeviceLostError(DeviceError):
    """A device computes no longer; the trainer has what it had before the step."""


class WorkerMemoryError(MemoryError):
    """A worker's device has not enough memory.

    Attributes:
        device: which.
    """

    def __init__(self, device: torch.device, reason: str) -> None:
        super().__init__(f"{device}: {reason}")
        self.device = device


class Workers:
    """The processes on the devices besides the trainer's; there may be none."""

    def __init__(
        self,
        model: nn.Module,
        manifest: Manifest | None = None,
        devices: Sequence[torch.device] = (),
        compiled: bool | None = None,
        gpu_memory: float = 1.0,
        *,
        checkpointing: bool = False,
    ) -> None:
        """Start one for each device but the first, which is the trainer's, and wait until they are there.

        Args:
            model: the trainer's.
            manifest: of what it was built from.
            devices: of all; none is as good as one.
            compiled: see `maybe_compile`.
            gpu_memory: see `limit_memory`.
            checkpointing: see `checkpoint_activations`.

        Raises:
            DeviceError: a device cannot be used.
        """
        self._parameters = list(model.parameters())
        numel = sum(parameter.numel() for parameter in self._parameters)
        threads = max(1, usable_cores() // max(1, len(devices)))
        self._all = [_Worker(numel, device, devices[0]) for device in devices[1:]]
        try:
            for worker in self._all:
                worker.begin(manifest, threads, compiled, gpu_memory, checkpointing)
        except BaseException:
            self.close()
            raise

    @property
    def devices(self) -> int:
        """How many compute a step, with the trainer's own."""
        return 1 + len(self._all)

    def deal(self, batch: Batch) -> list[Batch]:
        """The part of each device, the trainer's first: as even as can be, and of few examples maybe none."""
        own, *others = zip(*(torch.tensor_split(tensor, self.devices) for tensor in batch), strict=True)
        return [own, *(tuple(tensor.clone() for tensor in part) for part in others)]  # not the whole batch

    @contextmanager
    def computing(
        self,
        shares: Sequence[list[Batch]],
        examples: int,
        at_once: int,
        dtype: torch.dtype,
        scale: float,
        look: Callable[[], object],
    ) -> Iterator[Gather]:
        """Inside, each worker computes gradients of its share of a step.

        Args:
            shares: of each worker.
            examples: of the whole step.
            at_once: how many to compute with at most.
            dtype: of products.
            scale: what the loss is multiplied with.
            look: called while a worker is waited for; what it raises ends that.

        Yields:
            What to call with the trainer's own loss when it has its gradients: theirs come to those, and
            the loss of all is returned. Without that call nothing has happened.

        Raises:
            WorkerMemoryError: in that call; a device has not enough.
            DeviceLostError: a worker has ended, or cannot compute this.
        """
        if not self._all:
            yield lambda loss: loss
            return
        seeds = torch.randint(SEEDS, (len(self._all),)).tolist()
        try:
            for worker, batches, seed in zip(self._all, shares, seeds, strict=True):
                worker.answer(look)  # of a step that was dropped
                worker.area.put(self._parameters)
                worker.tell(Compute(batches, examples, at_once, dtype, scale, seed))
            yield partial(self._gather, look)
        finally:
            for worker in self._all:
                worker.drop()

    def _gather(self, look: Callable[[], object], loss: Tensor) -> Tensor:
        answers = [worker.answer(look) for worker in self._all]
        for worker, answer in zip(self._all, answers, strict=True):
            worker.check(answer)
        unused = [parameter for parameter in self._parameters if parameter.grad is None]
        for worker, answer in zip(self._all, answers, strict=True):
            assert isinstance(answer, Done)
            worker.area.add_to(gradients(self._parameters))
            loss = loss + answer.loss
        for parameter in unused:  # the optimizer leaves it as it is, as on one device; zeros let it decay
            parameter.grad = None
        return loss

    def rest(self) -> None:
        """Leave the memory of their devices to others until the next step."""
        for worker in self._all:
            worker.answer()
            worker.tell(Rest())
        for worker in self._all:
            worker.answer()

    def close(self) -> None:
        """End them."""
        for worker in self._all:
            worker.close()
        self._all = []


class _Worker:
    """One of them: its process, the pipe to it, and the memory that is shared with it."""

    def __init__(self, numel: int, device: torch.device, trainers: torch.device) -> None:
        self.device = device
        self._owes = True  # an answer
        self._pipe, theirs = Pipe()
        fd = anonymous_file()
        self.area = Area(fd, numel, trainers)
        # -P: the working folder is no place to import from. A group of its own: Ctrl-C is for the trainer.
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "dupt_swarm.learning.data_parallel.worker"),
                *(str(theirs.fileno()), str(fd), str(device)),
            ],
            pass_fds=(theirs.fileno(), fd),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        os.close(fd)

    def begin(self, *about: object) -> None:
        """Tell it what it needs to know, and wait until it is ready."""
        with self._alive() as pipe:
            send(pipe, about)
        self.check(self.answer())

    def tell(self, order: Order) -> None:
        """Send it an order."""
        with self._alive() as pipe:
            send(pipe, order)
        self._owes = self._owes or not isinstance(order, Drop)

    def answer(self, look: Callable[[], object] = lambda: None) -> Answer:
        """Wait for what it says, and look around meanwhile; if it has nothing to say, it is ready."""
        if not self._owes:
            return Ready()
        while not self._has_answered():
            look()
        with self._alive() as pipe:
            found: Answer = receive(pipe)
        self._owes = False
        return found

    def check(self, answer: Answer) -> None:
        """Raise what is wrong, or tell what it remarks."""
        if isinstance(answer, Failed):
            if answer.of_memory:
                raise WorkerMemoryError(self.device, answer.reason)
            raise DeviceLostError(f"{self.device}: {answer.reason}; {REMEDY}")
        if isinstance(answer, Done) and answer.remark:
            logger.warning("%s: %s", self.device, answer.remark)

    def drop(self) -> None:
        """If it still computes, nobody wants that; one that has ended is found with the next step."""
        if self._owes:
            with contextlib.suppress(DeviceLostError):
                self.tell(Drop())

    def close(self) -> None:
        """End it."""
        self._pipe.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.area.close()

    def _has_answered(self) -> bool:
        with self._alive() as pipe:
            return pipe.poll(LOOK_SECONDS)

    @contextmanager
    def _alive(self) -> Iterator[Connection]:
        try:
            yield self._pipe
        except (EOFError, OSError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(MOMENT_SECONDS)
            code = self._process.returncode
            raise DeviceLostError(
                f"{self.device}: the process that computed there has ended (exit code {code}); {REMEDY}"
            ) from error
