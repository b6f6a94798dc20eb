"""How often a model writes each token when nobody tells it what to write about.

Its predictions on a text are as frequent as what the text holds, for it has learnt to tell texts apart. Left to
itself it writes of all that it was trained on: a swarm's model of every oracle's corpus. So each oracle can see
for itself how common a token is among all, and none tells of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.decoder.gpt import GPT
from dupt_swarm.learning.evaluation import evaluating

SEQUENCES, AT_ONCE = 128, 32  # at once: of a vocabulary of 256,000 they take 32 MB
EVEN = 0.01  # of the distribution is even, so that no token is impossible
# Where in (0, 1) each place of each sequence draws: multiples of these, which fill it evenly and do not go together.
IRRATIONAL = (0.6180339887, 0.4142135624, 0.7320508076)


class Unigrams:
    """The unigram distribution of a decoder.

    Attributes:
        embeddings: its parameters with a row for each token, ``[V, C]`` each: W_e, and that of the output if
            it has another.
    """

    def __init__(self, decoder: GPT) -> None:
        """Of whatever weights ``decoder`` has when it is measured."""
        self._decoder = decoder
        self.embeddings: list[nn.Parameter] = list(dict.fromkeys([decoder.wte.weight, decoder.output_weight]))

    @torch.no_grad()
    def measure(self) -> Tensor:
        """Fp32 ``[V]``, positive, their sum 1; no random numbers are used, and nothing waits for the device.

        Sequences begin with tokens from all over the vocabulary, and go on as the model foretells. What follows
        on the first alone does not count.
        """
        size, device = len(self.embeddings[0]), self.embeddings[0].device
        total = torch.zeros(size, device=device)
        with evaluating(self._decoder):
            for numbers in torch.arange(SEQUENCES, device=device).split(AT_ONCE):
                tokens = (numbers * size // SEQUENCES)[:, None]
                for step in IRRATIONAL:
                    places = torch.frac((numbers + 1) * step)[:, None]
                    drawn = torch.searchsorted(self._foretell(tokens).cumsum(1), places)
                    tokens = torch.cat([tokens, drawn.clamp_(max=size - 1)], 1)
                    total += self._foretell(tokens).sum(0)
        return torch.lerp(total / total.sum(), torch.full_like(total, 1 / size), EVEN)

    def _foretell(self, tokens: Tensor) -> Tensor:
        """What follows on each sequence of ``[B, T]`` tokens: ``[B, V]``."""
        last = self._decoder.hidden(tokens)[:, -1]
        return F.linear(last, self._decoder.output_weight).float().softmax(1)


def unigrams_of(model: nn.Module) -> Unigrams | None:
    """Those of a decoder that learns language; None: ``model`` is something else."""
    return Unigrams(model) if isinstance(model, GPT) else None
