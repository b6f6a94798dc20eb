"""Parameters to one flat vector and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def flatten(parameters: Sequence[nn.Parameter], out: Tensor | None = None) -> Tensor:
    """A copy of all parameters, fp32 on their device, ``[numel]``; in ``out``, or else in new memory."""
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in parameters], out=out)


def unflatten(vector: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Copy ``vector`` (``[numel]``) into the parameters."""
    sizes = [parameter.numel() for parameter in parameters]
    with torch.no_grad():
        for parameter, part in zip(parameters, torch.split(vector, sizes), strict=True):
            parameter.copy_(part.view_as(parameter))


@contextmanager
def standing_at(vector: Tensor, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Inside, the parameters have the values of ``vector`` (``[numel]``), which is not to be written.

    On a CPU they lie in the vector itself; elsewhere it is copied to their device. Gradients stay.
    """
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

    In place: new memory would take several times as long as the arithmetic.
    """
    sizes = [parameter.numel() for parameter in parameters]
    places = zip(parameters, torch.split(base, sizes), torch.split(anchor, sizes), strict=True)
    with torch.no_grad():
        for parameter, before, after in places:
            values = parameter.float()  # the parameter itself, if it is fp32
            values.sub_(before.view_as(values)).add_(after.view_as(values))
            if values is not parameter:
                parameter.copy_(values)


def clip_gradients(parameters: Sequence[nn.Parameter], clip_norm: float) -> None:
    """Clip the gradients' global norm to ``clip_norm``; 0 means no clipping."""
    if clip_norm:
        nn.utils.clip_grad_norm_(parameters, clip_norm)
