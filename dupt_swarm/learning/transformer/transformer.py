"""What all models have in common: embedded tokens, stacks of blocks, and first weights."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.transformer.block import BLOCKS
from dupt_swarm.learning.transformer.dropout import Dropout
from dupt_swarm.learning.transformer.norms import build_norm
from dupt_swarm.learning.transformer.positions import POSITIONS, Positions, Turn
from dupt_swarm.manifest import Model


def stack(config: Model, layers: int, **how: bool) -> tuple[nn.ModuleList, nn.Module]:
    """So many blocks, and what normalises what the last one gives; for ``how`` see `Block`."""
    block = BLOCKS[config.placement]
    blocks = nn.ModuleList(block(config, **how) for _ in range(layers))
    return blocks, nn.Identity() if block.normalised else build_norm(config.width, config)


class Transformer(nn.Module):
    """A model of the manifest's shape, its weights drawn with seed 0 (`init_weights` draws others)."""

    def __init__(self, config: Model) -> None:
        """Its embeddings; a subclass adds the rest, and then calls `complete`."""
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocabulary_size, config.width)  # W_e
        self.wpe = POSITIONS[config.positions](config)  # W_p, if they are learned
        self.drop = Dropout(config.dropout)

    def complete(self) -> None:
        """See that the parameters are those of `Model.parameter_shapes`, in their order, and draw them."""
        shapes = [(name, tuple(parameter.shape)) for name, parameter in self.named_parameters()]
        assert shapes == list(self.config.parameter_shapes().items()), "the manifest says otherwise"
        self.init_weights(0)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw weights and embeddings from N(0, init_std), with zero biases and unit gains.

        The same seed gives the same bits whatever the model's device. GPT-1 section 4.1; where blocks do not
        normalise what they give, the last projection of each residual branch is divided by √(2·layers), as
        in GPT-2 section 2.3, in an encoder's blocks, too.
        """
        config, generator = self.config, torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.is_meta:
                continue
            if parameter.ndim == 1:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
                continue
            std = config.init_std
            if name.endswith("c_proj.weight") and not BLOCKS[config.placement].normalised:
                std /= math.sqrt(2 * config.layers)
            parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))

    def embed(self, tokens: Tensor, start: int = 0, remedy: str = "fewer") -> tuple[Tensor, Turn]:
        """h_0, without dropout, and what positions do to queries and keys.

        Args:
            tokens: int64 [B, T].
            start: how many are before them.
            remedy: what to give the model where they are too many.

        Returns:
            [B, T, C], and a `Turn`.

        Raises:
            UsageError: they are longer than the context.
        """
        end = start + tokens.size(1)
        if end > self.config.context_length:
            raise UsageError(
                f"{end} tokens are more than the context of {self.config.context_length}; "
                f"give the model {remedy}"
            )
        positions = cast(Positions, self.wpe)
        return positions.add(self.wte(tokens), start), positions.turn(start, end)


class Writing(Transformer):
    """A model that predicts the next token: the output is W_e, unless embeddings are untied."""

    lm_head: nn.Linear | None

    def complete(self) -> None:
        """Add the output; see `Transformer.complete`."""
        config = self.config
        untied = not config.tie_embeddings
        self.lm_head = nn.Linear(config.width, config.vocabulary_size, bias=False) if untied else None
        super().complete()

    @property
    def output_weight(self) -> Tensor:
        """[V, C], what h_n is multiplied with."""
        return self.wte.weight if self.lm_head is None else self.lm_head.weight
