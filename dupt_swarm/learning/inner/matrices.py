"""Which parameters are the matrices of a model's blocks, the ones that Muon is for.

Muon turns a gradient into a matrix with equal singular values, which suits a matrix that maps features to
features. In an embedding each row is a feature of its own, and so in a head: those are AdamW's.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def block_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The two-dimensional parameters in the lists of layers of ``model`` (`nn.ModuleList`), no embeddings.

    These are the blocks of our models, and of nearly all decoders; embeddings and heads lie beside the list.
    """
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    inside = {parameter: None for blocks in lists for parameter in blocks.parameters()}
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    return [parameter for parameter in inside if parameter.ndim == 2 and parameter not in embeddings]


def assumed_block_matrices(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """What is taken for blocks' matrices in a mere list: the matrices between the first vector and the last.

    Embeddings stand first in a model, before any gain or bias, and a head without bias last. Where this is
    wrong, it mostly leaves a matrix to AdamW, which trains it too.
    """
    vectors = [index for index, parameter in enumerate(parameters) if parameter.ndim == 1]
    if not vectors:
        return []
    return [parameter for parameter in parameters[vectors[0] : vectors[-1]] if parameter.ndim == 2]
