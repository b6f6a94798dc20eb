"""Activation checkpointing (Chen et al. 2016, arXiv:1604.06174): less memory for a quarter of the speed."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(model: nn.Module, *, wanted: bool = True) -> None:
    """Have each of the model's blocks keep what it was given alone, and compute the rest again when needed.

    A block is what lies in a list of layers (`nn.ModuleList`). Losses and gradients stay the same, those
    with dropout too, and so do names of parameters and of the state.

    Args:
        model: any.
        wanted: False takes it back.
    """
    for layers in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
        for block in layers:
            block.__dict__.pop("forward", None)
            if wanted:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)
