"""How common a model finds each token: how often it writes it when nobody tells it what to write about.

What it predicts on a text is as frequent as in that text, which tells it what the rest will be like. Left to
itself it writes of all that it was trained on: a swarm's model of all oracles' corpora. So each can see
for itself how common a token is among all, and none tells of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.evaluation import evaluating
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.gpt import GPT

SEQUENCES = 128
AT_ONCE = {"cpu": 32}  # what is predicted of them takes 32 MB with a vocabulary of 256,000
EVEN = 0.01  # of the distribution is even, so that no token is impossible
# Sequences draw at multiples of these, modulo 1, which fill (0, 1) evenly and do not go together.
IRRATIONAL = (0.6180339887, 0.4142135624, 0.7320508076)
TOKENS = 1 + len(IRRATIONAL)  # of a sequence


class Unigrams:
    """The unigram distribution of a decoder.

    Attributes:
        embeddings: its parameters with a row for each token, ``[V, C]`` each: W_e, and that of the output if
            it has another.
    """

    def __init__(self, decoder: GPT) -> None:
        """Of whatever weights ``decoder`` has when it is measured."""
        self._decoder = decoder
        self.embeddings = [cast(nn.Parameter, decoder.wte.weight)]
        if decoder.lm_head is not None:
            self.embeddings.append(cast(nn.Parameter, decoder.lm_head.weight))

    @torch.no_grad()
    def measure(self, known: Tensor | None = None) -> Tensor:
        """Fp32 ``[V]``, positive, their sum 1; no random numbers are used, and nothing waits for the device.

        Sequences begin with tokens that are as common as in ``known``, from an earlier measurement (None: all
        alike), and go on as the model predicts. What follows on the first alone does not count.
        """
        size, device = len(self.embeddings[0]), self.embeddings[0].device
        even = torch.full((size,), 1 / size, device=device)
        beginnings, total = (even if known is None else known).cumsum(0), torch.zeros_like(even)
        numbers = torch.arange(SEQUENCES, device=device)
        tokens = _drawn(beginnings, (numbers + 0.5) / SEQUENCES)[:, None]
        cache = Cache(self._decoder.config, SEQUENCES, device, TOKENS)
        with evaluating(self._decoder):
            for length, step in enumerate(IRRATIONAL, 1):
                places = torch.frac((numbers + 1) * step)[:, None]
                following = []
                for predicted, some in zip(self._predict(tokens, cache), _pieces(places), strict=True):
                    if length > 1:
                        total += predicted.sum(0)
                    following.append(_drawn(predicted.cumsum(1), some))
                tokens = torch.cat([tokens, torch.cat(following)], 1)
            for predicted in self._predict(tokens, cache):
                total += predicted.sum(0)
        return torch.lerp(total / total.sum(), even, EVEN)

    def _predict(self, tokens: Tensor, cache: Cache) -> Iterator[Tensor]:
        """What follows on ``[B, T]`` tokens, or on the last that the context holds: pieces of ``[B, V]``.

        ``cache`` holds those that were read before, and all afterwards.
        """
        kept = tokens[:, -self._decoder.config.context_length :]
        if kept.size(1) < tokens.size(1):
            cache.clear()
        last = self._decoder.hidden(kept[:, cache.length :], cache)[:, -1]
        for rows in _pieces(last):
            yield F.linear(rows, self._decoder.output_weight).float().softmax(1)


def _pieces(rows: Tensor) -> tuple[Tensor, ...]:
    """As many at once as there is to be predicted."""
    return torch.split(rows, AT_ONCE.get(rows.device.type, len(rows)))


def _drawn(cumulative: Tensor, places: Tensor) -> Tensor:
    """The tokens at these places in (0, 1) of cumulative distributions."""
    return torch.searchsorted(cumulative, places).clamp_(max=cumulative.size(-1) - 1)


def unigrams_of(model: nn.Module) -> Unigrams | None:
    """Those of a decoder that learns language; None: ``model`` is something else."""
    return Unigrams(model) if isinstance(model, GPT) else None
