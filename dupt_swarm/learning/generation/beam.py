"""An encoder-decoder writes the target of a source: beam search, or greedily with one beam.

Of the sequences that one more token makes of those so far the likeliest go on, as many as there are beams;
one that is among them and ends is put aside. As soon as so many have ended, the one with the best score
log P ÷ ((5 + length) ÷ 6)^α is the output (Wu et al. 2016, arXiv:1609.08144, section 7, without coverage).
Four beams, α = 0.6 and at most 50 tokens more than the source has are those of Vaswani et al. 2017, section
6.1.
Shapes: K beams, V = vocabulary size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.evaluation import evaluating
from dupt_swarm.learning.labelled.pairs import padded
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder

LONGER = 50  # tokens that an output may have more than its source


@dataclass(frozen=True)
class BeamSearch:
    """How to search.

    Attributes:
        beams: sequences that are kept; 1: greedy.
        length_penalty: α; 0: the likeliest sequence, which is a short one; larger ones prefer longer.

    Raises:
        UsageError: a value is impossible.
    """

    beams: int = 4
    length_penalty: float = 0.6

    def __post_init__(self) -> None:
        if self.beams < 1:
            raise UsageError(f"{self.beams} beams are none; use at least 1", setting="beams")
        if not 0 <= self.length_penalty <= 10:
            raise UsageError(
                f"length_penalty = {self.length_penalty} is impossible; use 0 to 10", setting="length_penalty"
            )

    def score(self, logp: float, length: int) -> float:
        """What a sequence of so many tokens, with its end, is worth."""
        return float(logp / ((5 + length) / 6) ** self.length_penalty)


@dataclass(frozen=True)
class Output:
    """What was written.

    Attributes:
        tokens: without the end.
        score: see `BeamSearch.score`.
    """

    tokens: list[int]
    score: float


@torch.inference_mode()
def write(
    model: EncoderDecoder,
    sources: Sequence[Sequence[int]],
    search: BeamSearch,
    *,
    end: int,
    vocabulary_size: int | None = None,
) -> list[Output]:
    """The best output for each source. Logits are computed in fp32 whatever the device.

    Args:
        model: of fp32 weights; dropout is off meanwhile.
        sources: at least one token each, none longer than the context.
        search: how to search.
        end: what begins and ends an output, as `Tokenizer.end_of_text`.
        vocabulary_size: choose among ids below this only: W_e may have more rows. None: among all.

    Raises:
        UsageError: a source is empty, or longer than the context.
    """
    if not sources:
        return []
    if not all(sources):
        raise UsageError("there is nothing to write for: a source is empty; leave it out")
    device = model.wte.weight.device
    with evaluating(model):
        source, lengths = (tensor.to(device) for tensor in padded(sources))
        rows = torch.arange(len(sources), device=device).repeat_interleave(search.beams)
        memories = [memory.of(rows) for memory in model.encode(source, lengths)]
        most = [min(len(one) + LONGER, model.config.context_length) for one in sources]
        beams = [_Beams(search, end, limit) for limit in most]
        room = model.config.model_copy(update={"context_length": max(most)})
        cache = Cache(room, len(rows), device)
        tokens = torch.full((len(rows), 1), end, device=device)
        for _ in range(max(most)):
            h = model.hidden(tokens, memories, cache)[:, -1]
            logp = F.linear(h, model.output_weight)[:, :vocabulary_size].log_softmax(-1)
            chosen = [
                one.advance(part) for one, part in zip(beams, torch.split(logp, search.beams), strict=True)
            ]
            if all(one.done for one in beams):
                break
            origins = [number * search.beams + beam for number, each in enumerate(chosen) for beam, _ in each]
            if search.beams > 1:
                cache.reorder(torch.tensor(origins, device=device))
            tokens = torch.tensor([[token] for each in chosen for _, token in each], device=device)
    return [one.best for one in beams]


class _Beams:
    """The search for one output.

    Attributes:
        done: as many outputs have ended as there are beams, or none that goes on can become better.
        best: of what has ended.
    """

    def __init__(self, search: BeamSearch, end: int, most: int) -> None:
        """``most``: the tokens that an output may have, with its end."""
        self.done = False
        self.best = Output([], -math.inf)
        self._search, self._end, self._most = search, end, most
        self._tokens: list[list[int]] = [[] for _ in range(search.beams)]
        # All begin alike, and would stay so: only the first one counts.
        self._logp = torch.tensor([0.0] + [-math.inf] * (search.beams - 1))
        self._ended = 0

    def advance(self, logp: Tensor) -> list[tuple[int, int]]:
        """One token more.

        Args:
            logp: fp32 [K, V], of what may follow on each beam.

        Returns:
            For each beam from now on which one it goes on, and with which token.
        """
        K, V = logp.shape
        if self.done:
            return [(0, self._end)] * K
        length = len(self._tokens[0]) + 1
        # Each beam can end in one way, so among twice as many there are enough that go on.
        likeliest, indices = (self._logp[:, None] + logp.cpu()).flatten().topk(2 * K)
        going: list[tuple[int, int]] = []
        going_logp: list[float] = []
        for rank, (index, found) in enumerate(zip(indices.tolist(), likeliest.tolist(), strict=True)):
            beam, token = divmod(index, V)
            if token != self._end and len(going) < K:
                going.append((beam, token))
                going_logp.append(found)
            elif token == self._end and rank < K and found > -math.inf:
                self._finish(self._tokens[beam], found, length)
        self._tokens = [[*self._tokens[beam], token] for beam, token in going]
        self._logp = torch.tensor(going_logp)
        if length == self._most:  # what has not ended ends here
            for tokens, found in zip(self._tokens, going_logp, strict=True):
                self._finish(tokens, found, length)
        # log P only falls, and at no length it is worth more than at the longest.
        possible = self._search.score(going_logp[0], self._most)
        self.done = length == self._most or self._ended >= K or possible <= self.best.score
        return going

    def _finish(self, tokens: list[int], logp: float, length: int) -> None:
        self._ended += 1
        score = self._search.score(logp, length)
        if score > self.best.score:
            self.best = Output(tokens, score)
