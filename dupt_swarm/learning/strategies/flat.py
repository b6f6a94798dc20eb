"""Parameters to one flat vector and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def flatten(parameters: Sequence[nn.Parameter]) -> Tensor:
    """A copy of all parameters, fp32 on their device, ``[numel]``."""
    return torch.cat([parameter.detach().float().reshape(-1) for parameter in parameters])


def unflatten(vector: Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Copy ``vector`` (``[numel]``) into the parameters."""
    sizes = [parameter.numel() for parameter in parameters]
    with torch.no_grad():
        for parameter, part in zip(parameters, torch.split(vector, sizes), strict=True):
            parameter.copy_(part.view_as(parameter))


def clip_gradients(parameters: Sequence[nn.Parameter], clip_norm: float) -> None:
    """Clip the gradients' global norm to ``clip_norm``; 0 means no clipping."""
    if clip_norm:
        nn.utils.clip_grad_norm_(parameters, clip_norm)
