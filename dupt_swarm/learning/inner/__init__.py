"""The inner optimizer: plain PyTorch, local to each oracle.

adamw             AdamW and SGD: for all parameters, or for those that Muon leaves
muon              Muon for the blocks' matrices, AdamW for the rest
matrices          which parameters are the blocks' matrices
embedding_adamw   for embeddings, by how common the model finds their tokens
unigrams          how common that is
offloading        moments in the main memory
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor, nn, optim

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.inner.adamw import build_adamw, build_sgd
from dupt_swarm.learning.inner.embedding_adamw import EmbeddingAdamW
from dupt_swarm.learning.inner.matrices import assumed_block_matrices
from dupt_swarm.learning.inner.muon import JointOptimizer, build_muon, parts_of
from dupt_swarm.learning.inner.unigrams import Unigrams
from dupt_swarm.manifest import Inner

Build = Callable[[Sequence[nn.Parameter], Collection[nn.Parameter], Inner], optim.Optimizer]
OPTIMIZERS: dict[str, Build] = {
    "adamw": lambda parameters, _, inner: build_adamw(parameters, inner),
    "sgd": lambda parameters, _, inner: build_sgd(parameters, inner),
    "muon": build_muon,
}

MOMENTS = {"adamw": 2, "muon": 2, "sgd": 0, "none": 0}
"""Numbers that they remember of each weight; Muon at most."""


def build_inner(
    parameters: Iterable[nn.Parameter],
    inner: Inner,
    matrices: Iterable[nn.Parameter] | None = None,
    unigrams: Unigrams | None = None,
) -> optim.Optimizer:
    """The optimizer that ``inner`` names, with the peak learning rate.

    Matrices and embeddings decay, biases and gains do not (GPT-1, section 4.1). The caller sets
    ``group["lr"]`` of all groups before each update.

    Args:
        parameters: of the model, in its order.
        inner: the manifest's table.
        matrices: which of them are the blocks' matrices (see `block_matrices`), for Muon; None: to be
            guessed from their order.
        unigrams: of the model, for ``inner.embedding_scale`` "model"; None: its embeddings are AdamW's.

    Raises:
        UsageError: the manifest has no inner optimizer.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if inner.optimizer not in OPTIMIZERS:
        raise UsageError('inner.optimizer is "none"; only strategy `diloco` has one for its inner steps')
    named = assumed_block_matrices(trained) if matrices is None else list(matrices)
    if unigrams is None or inner.embedding_scale == "own":
        return OPTIMIZERS[inner.optimizer](trained, named, inner)
    apart = set(unigrams.embeddings)
    rest = [parameter for parameter in trained if parameter not in apart]
    others = OPTIMIZERS[inner.optimizer](rest, named, inner)
    return JointOptimizer([EmbeddingAdamW(unigrams, inner), *parts_of(others)])


def renew_scales(inner: optim.Optimizer) -> None:
    """Tell an optimizer of `build_inner` that its model has just been averaged with others."""
    for part in parts_of(inner):
        if isinstance(part, EmbeddingAdamW):
            part.renew()


def move_moments(inner: optim.Optimizer, device: torch.device) -> None:
    """Have on ``device`` what an optimizer of `build_inner` remembers of each weight.

    A number, such as how many steps were made, stays where the optimizer wants it.
    """
    for part in parts_of(inner):
        for state in part.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor) and value.ndim:
                    state[name] = value.to(device)
