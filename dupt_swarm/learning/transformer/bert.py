"""The encoder: BERT (Devlin et al. 2018, arXiv:1810.04805), whose positions see those before and after them.

h_0 = norm(U·W_e + W_p + W_s), then the decoder's blocks without its mask. A masked token is predicted by
softmax(norm(gelu(h_n·W_t))·W_eᵀ + b), and whether one text follows on another by tanh(h_n[CLS]·W_pool)·W_f.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy
from dupt_swarm.learning.transformer.feed_forward import ACTIVATIONS
from dupt_swarm.learning.transformer.norms import build_norm
from dupt_swarm.learning.transformer.transformer import Transformer, stack
from dupt_swarm.manifest import Model
from dupt_swarm.manifest.model import SEGMENTS


class Bias(nn.Module):
    """b of the output, on its own: its matrix is W_e."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocabulary_size)) if config.biases else None


class Bert(Transformer):
    """An encoder of the manifest's shape, its weights drawn with seed 0 (`init_weights` draws others).

    A sequence is [CLS] text [SEP], or [CLS] text [SEP] text [SEP]. Shapes: B sequences, T tokens, M of which
    are predicted.
    """

    def __init__(self, config: Model) -> None:
        super().__init__(config)
        self.wse = nn.Embedding(SEGMENTS, config.width)  # W_s
        self.ln_e = build_norm(config.width, config)
        self.h, self.ln_f = stack(config, config.layers, causal=False)
        self.pooler = nn.Linear(config.width, config.width, bias=config.biases)
        self.transform = nn.Linear(config.width, config.width, bias=config.biases)
        self.ln_t = build_norm(config.width, config)
        self.output = Bias(config)
        self.follows = nn.Linear(config.width, 2, bias=config.biases)
        self._activation = ACTIVATIONS[config.feed_forward]
        self.complete()

    def forward(
        self,
        tokens: Tensor,
        places: Tensor,
        targets: Tensor,
        lengths: Tensor | None = None,
        followed: Tensor | None = None,
    ) -> Tensor:
        """The mean loss of the sequences, which count alike: of their masked tokens, and of what follows.

        Args:
            tokens: int64 [B, T], some of them masked.
            places: int64 [B, M], where they are.
            targets: int64 [B, M], what was there; −1: nothing is predicted.
            lengths: int64 [B], tokens that are no padding; None: all, and each sequence is one text.
            followed: int64 [B], whether the second text follows on the first (0) or is another (1), as in the
                published code; None: that is not predicted.

        Returns:
            An fp32 scalar, nats: the mean over a sequence's masked tokens, plus that of what follows.
        """
        h = self.hidden(tokens, lengths)
        loss = self.masked_loss(h, places, targets)
        if followed is None:
            return loss
        return loss + F.cross_entropy(self.follow_logits(h).float(), followed)

    def hidden(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """h_n, what the last block gives, normalised.

        Args:
            tokens: int64 [B, T].
            lengths: int64 [B], how many are no padding; what ends a sequence divides it, too, if it is there
                before. None: all, and each sequence is one text.

        Returns:
            [B, T, C].

        Raises:
            UsageError: they are longer than the context.
        """
        x, turn = self.embed(tokens)
        seen = None
        if lengths is None:
            x = x + self.wse.weight[0]
        else:
            # A sequence that is not there has nothing to see, and no softmax; its first token does no harm.
            last = lengths.clamp(min=1)
            seen = (torch.arange(tokens.size(1), device=tokens.device) < last[:, None])[:, None, None]
            x = x + self.wse(segments(tokens, last))
        x = self.drop(self.ln_e(x))
        for block in self.h:
            x = block(x, turn, seen=seen)
        return self.ln_f(x)  # type: ignore[no-any-return]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """h_n of sequences with padding after them: see `hidden`."""
        return self.hidden(tokens, lengths)

    def summary(self, h: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What a sequence is as a whole, from its [CLS] through the pooler: [B, T, C] to [B, C]."""
        del lengths
        return torch.tanh(self.pooler(h[:, 0]))

    def follow_logits(self, h: Tensor) -> Tensor:
        """Whether the second text follows on the first, [B, 2]: it does, it does not."""
        return self.follows(self.summary(h))  # type: ignore[no-any-return]

    def masked_logits(self, h: Tensor) -> Tensor:
        """What may be at each place, [N, C] to [N, V]."""
        return F.linear(self._transformed(h), self.wte.weight, self.output.bias)

    def masked_loss(self, h: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """The mean over sequences of the mean over their masked tokens, in nats; see `forward`."""
        predicted = targets >= 0
        share = predicted / (len(targets) * predicted.sum(1, keepdim=True).clamp(min=1))
        x = self._transformed(at(h, places).flatten(0, 1))
        return linear_cross_entropy(
            x, self.wte.weight, targets.clamp(min=0).flatten(), share.float().flatten(), self.output.bias
        )

    def _transformed(self, h: Tensor) -> Tensor:
        return self.ln_t(self._activation(self.transform(h)))  # type: ignore[no-any-return]


def at(h: Tensor, places: Tensor) -> Tensor:
    """[B, T, C] at int64 [B, M]: [B, M, C]."""
    return h.gather(1, places[:, :, None].expand(-1, -1, h.size(2)))


def segments(tokens: Tensor, lengths: Tensor) -> Tensor:
    """Which text each token belongs to, 0 or 1, int64 [B, T]: the first one ends with its [SEP].

    Args:
        tokens: int64 [B, T].
        lengths: int64 [B], at least 1; the last token of a sequence is its [SEP].
    """
    ends = tokens == tokens.gather(1, lengths[:, None] - 1)
    return ((ends.cumsum(1) - ends.long()) > 0).long()
