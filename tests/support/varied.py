"""Models whose biases and gains matter."""

from typing import TypeVar

import torch
from torch import nn

AnyModel = TypeVar("AnyModel", bound=nn.Module)


def varied(model: AnyModel) -> AnyModel:
    """The same model, in evaluation mode, with vectors that are not what they begin as."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return model.eval()
