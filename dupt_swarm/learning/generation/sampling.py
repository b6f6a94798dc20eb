"""Which token comes next: scores are changed, then one token is drawn.

Order and meaning are those of transformers' logits processors: repetition penalty (Keskar et al. 2019,
"CTRL", section 4.1), temperature, top-k (Fan et al. 2018, "Hierarchical Neural Story Generation", section
5.4), top-p (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration", section 3.1).
V = vocabulary size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dupt_swarm.errors import UsageError

SEEDS = 1 << 63


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens.

    Attributes:
        tokens: how many at most.
        temperature: scores are divided by it; 0: always the likeliest token.
        top_k: choose among the k likeliest; 0: among all.
        top_p: choose among the fewest likeliest tokens that together have at least this probability.
        repetition_penalty: positive scores of tokens that were there already are divided by it, negative
            ones multiplied; 1: no penalty.
        seed: the same seed gives the same tokens; None: different ones each time.

    Raises:
        UsageError: a value is impossible.
    """

    tokens: int = 200
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check("tokens", self.tokens, self.tokens >= 0, "0 or more")
        _check("temperature", self.temperature, 0 <= self.temperature < math.inf, "0 or more")
        _check("top_k", self.top_k, self.top_k >= 0, "0 for no limit, or at least 1")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "more than 0, at most 1")
        penalty = self.repetition_penalty
        _check("repetition_penalty", penalty, 0 < penalty < math.inf, "more than 0; 1 is no penalty")
        _check("seed", self.seed, self.seed is None or 0 <= self.seed < SEEDS, "from 0 to 2⁶³ − 1")

    def choose(self, logits: Tensor, before: Sequence[int], generator: torch.Generator) -> int:
        """The next token.

        Args:
            logits: [V], fp32, on the CPU.
            before: the tokens so far, those of the prompt too.
            generator: on the CPU; used only if ``temperature`` is not 0.
        """
        if self.repetition_penalty != 1:
            logits = penalise_repetition(logits, before, self.repetition_penalty)
        if self.temperature == 0:
            return int(logits.argmax())
        scaled = logits if self.temperature == 1 else logits / self.temperature
        if not scaled.max().isfinite():  # beyond fp32: no other token has a chance
            return int(logits.argmax())
        if self.top_k:
            scaled = keep_top_k(scaled, self.top_k)
        if self.top_p < 1:
            scaled = keep_top_p(scaled, self.top_p)
        return int(torch.multinomial(scaled.softmax(0), 1, generator=generator))


def penalise_repetition(logits: Tensor, before: Sequence[int], penalty: float) -> Tensor:
    """[V] to [V]: scores of tokens in ``before`` are divided by ``penalty``, negative ones multiplied.

    A prompt may have tokens that the model can read, but not write: they have no score.
    """
    seen = torch.tensor(sorted({token for token in before if token < len(logits)}), dtype=torch.int64)
    scores = logits[seen]
    return logits.index_copy(0, seen, torch.where(scores < 0, scores * penalty, scores / penalty))


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """[V] to [V]: −∞ for all that score less than the k-th best."""
    kth = logits.topk(min(k, len(logits))).values[-1]
    return logits.masked_fill(logits < kth, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """[V] to [V]: −∞ for the least likely tokens, as many as have 1 − p together; the likeliest stays."""
    ascending, order = logits.sort()
    unlikely = ascending.softmax(0).cumsum(0) <= 1 - p
    unlikely[-1] = False
    return logits.masked_fill(torch.zeros_like(unlikely).scatter(0, order, unlikely), -torch.inf)


def _check(setting: str, value: object, fits: bool, remedy: str) -> None:
    if not fits:
        raise UsageError(f"{setting} = {value} is impossible; use {remedy}", setting=setting)
