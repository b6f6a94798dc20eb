"""Parameters to one flat vector and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dupt_swarm.learning.device import on

PIECE = 1 << 24  # values that are on their way at once: 64 MiB


def flatten(parameters: Sequence[nn.Parameter], out: Tensor | None = None) -> Tensor:
    """A copy of all parameters, fp32 on their device, ``[numel]``; in ``out``, or else in new memory."""
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in parameters], out=out)


def unflatten(vector: Tensor, parameters: Sequence[Tensor]) -> None:
    """Copy ``vector`` (``[numel]``) into the parameters."""
    with torch.no_grad():
        for part, values in pieces(parameters, vector):
            part.copy_(on(part.device, values))


class Snapshot:
    """The values that parameters had at some moment, in the main memory.

    A GPU is told to copy them before it is told whatever changes them next, and nobody waits for that.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        """Nothing is allocated before the first is taken."""
        self._parameters = parameters
        self._values: Tensor | None = None
        self._copied: torch.cuda.Event | None = None

    @torch.no_grad()
    def take(self) -> None:
        """This is the moment; what was taken before is gone."""
        device = self._parameters[0].device
        if device.type == "cpu":
            self._values = flatten(self._parameters, self._values)
            return
        if self._values is None:
            numel = sum(parameter.numel() for parameter in self._parameters)
            self._values = torch.empty(numel, pin_memory=device.type == "cuda")
        for part, room in pieces(self._parameters, self._values):
            room.copy_(part, non_blocking=device.type == "cuda")
        if device.type == "cuda":
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(device))

    @property
    def values(self) -> Tensor:
        """fp32 ``[numel]`` on the CPU, not to be written; from any thread."""
        assert self._values is not None
        if self._copied is not None:
            self._copied.synchronize()
        return self._values


@contextmanager
def standing_at(vector: Tensor, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Inside, the parameters have the values of ``vector`` (``[numel]``), which is not to be written.

    On a CPU they lie in the vector itself; elsewhere their own are kept in the main memory meanwhile, so that
    the device needs no more of its own. Gradients stay.
    """
    if any(parameter.device.type != "cpu" for parameter in parameters):
        own_values = Snapshot(parameters)
        own_values.take()
        try:
            unflatten(vector, parameters)
            yield
        finally:
            unflatten(own_values.values, parameters)
        return
    own = [parameter.data for parameter in parameters]
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    try:
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.data = part.view_as(parameter).to(parameter.data)
        yield
    finally:
        for parameter, values in zip(parameters, own, strict=True):
            parameter.data = values


def move(parameters: Sequence[nn.Parameter], base: Tensor, anchor: Tensor) -> None:
    """θ ← (θ − base) + anchor (``[numel]`` each): bit for bit the anchor where θ is still as in ``base``.

    In place and in pieces: new memory would take several times as long as the arithmetic.
    """
    with torch.no_grad():
        for (part, before), (_, after) in zip(
            pieces(parameters, base), pieces(parameters, anchor), strict=True
        ):
            values = part.float()  # the parameter itself, if it is fp32
            values.sub_(on(part.device, before)).add_(on(part.device, after))
            if values is not part:
                part.copy_(values)


def move_to(device: torch.device, parameters: Sequence[nn.Parameter]) -> None:
    """Have the parameters on ``device``; gradients are forgotten."""
    for parameter in parameters:
        parameter.grad = None
        parameter.data = parameter.data.to(device)


def pieces(parameters: Sequence[Tensor], vector: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Parts of the parameters, of `PIECE` values at most, and what ``vector`` (``[numel]``) has for them."""
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, values in zip(parameters, torch.split(vector, sizes), strict=True):
        if parameter.is_contiguous():
            yield from zip(
                torch.split(parameter.detach().view(-1), PIECE), torch.split(values, PIECE), strict=True
            )
        else:
            yield parameter.detach(), values.view_as(parameter)


def clip_gradients(parameters: Sequence[nn.Parameter], clip_norm: float) -> None:
    """Clip the gradients' global norm to ``clip_norm``; 0 means no clipping."""
    if clip_norm:
        nn.utils.clip_grad_norm_(parameters, clip_norm)
