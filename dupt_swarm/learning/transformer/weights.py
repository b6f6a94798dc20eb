"""A model's first weights, drawn from a seed, and whether they are those that the manifest declares."""

from __future__ import annotations

import math

import torch
from torch import nn

from dupt_swarm.learning.transformer.block import BLOCKS
from dupt_swarm.manifest import Model


def check_shapes(model: nn.Module, config: Model) -> None:
    """See that the parameters are those of `Model.parameter_shapes`, in their order."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert list(shapes.items()) == list(config.parameter_shapes().items()), "the manifest says otherwise"


@torch.no_grad()
def draw_weights(model: nn.Module, config: Model, seed: int) -> None:
    """Draw weights and embeddings from N(0, init_std), with zero biases and unit gains.

    The same seed gives the same bits whatever the model's device. GPT-1 section 4.1; where blocks do not
    normalise what they give, the last projection of each residual branch is divided by √(2·layers), as
    in GPT-2 section 2.3, in an encoder's blocks, too.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            continue
        if parameter.ndim == 1:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
            continue
        std = config.init_std
        if name.endswith("c_proj.weight") and not BLOCKS[config.placement].normalised:
            std /= math.sqrt(2 * config.layers)
        parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))
