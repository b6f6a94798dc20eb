"""What all models have in common: embedded tokens, stacks of blocks, and first weights."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.transformer.block import BLOCKS
from dupt_swarm.learning.transformer.dropout import Dropout
from dupt_swarm.learning.transformer.norms import build_norm
from dupt_swarm.learning.transformer.positions import POSITIONS, Positions, Turn
from dupt_swarm.learning.transformer.weights import check_shapes, draw_weights
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
        """See that all weights are there, and draw them."""
        check_shapes(self, self.config)
        self.init_weights(0)

    def init_weights(self, seed: int) -> None:
        """See `draw_weights`."""
        draw_weights(self, self.config, seed)

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
    """A model that foretells the next token: the output is W_e, unless embeddings are untied."""

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
