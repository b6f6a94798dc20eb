"""A decoder continues a sequence of tokens, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.evaluation import evaluating
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.transformer.attention import Cache
from dupt_swarm.learning.transformer.gpt import GPT


def generate(
    model: GPT,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    end: int | None = None,
    vocabulary_size: int | None = None,
) -> Iterator[int]:
    """Tokens that follow on ``prompt``, each as soon as it is chosen.

    Positions end at the context's length. Of a longer prompt the model sees the last tokens;
    and whenever the context is full, it goes on with the last half of it, read anew. Logits are computed
    in fp32 whatever the device, and tokens are drawn on the CPU. On a CPU `lay_out_for_writing` makes a large
    model faster.

    Args:
        model: of fp32 weights; dropout is off meanwhile.
        prompt: at least one token.
        sampling: how to choose tokens, and how many at most.
        end: the token to end before, as `Tokenizer.end_of_text`; it is not among the result. None: none.
        vocabulary_size: choose among ids below this only: W_e may have more rows. None: among all.

    Raises:
        UsageError: the prompt is empty, or has tokens that the model does not have.
    """
    rows = model.config.vocabulary_size
    if not prompt:
        raise UsageError("there is nothing to continue; begin with the token of the end of a text")
    if not 0 <= min(prompt) <= max(prompt) < rows:
        raise UsageError(f"the prompt has tokens beyond the model's {rows}; encode it by its own tokenizer")
    return _generate(_Reader(model), list(prompt), sampling, end, vocabulary_size)


def _generate(
    reader: _Reader, tokens: list[int], sampling: Sampling, end: int | None, vocabulary_size: int | None
) -> Iterator[int]:
    generator = torch.Generator()
    if sampling.seed is None:
        generator.seed()
    else:
        generator.manual_seed(sampling.seed)
    new = tokens
    for _ in range(sampling.tokens):
        logits = reader.read(new)[:vocabulary_size]
        token = sampling.choose(logits, tokens, generator)
        if token == end:
            return
        yield token
        tokens.append(token)
        new = [token]


class _Reader:
    """Reads tokens, and predicts the next one; forgets the first half of the context when it is full."""

    def __init__(self, model: GPT) -> None:
        self._model = model
        self._device = model.wte.weight.device
        self._context = model.config.context_length
        self._window: list[int] = []  # what is in the cache
        with torch.inference_mode():
            self._cache = Cache(model.config, 1, self._device)

    @torch.inference_mode()
    def read(self, tokens: Sequence[int]) -> Tensor:
        """The logits, [V] on the CPU, of what follows on all tokens so far, of which these are the last."""
        full = len(self._window) == self._context
        self._window += tokens
        if len(self._window) > self._context:
            keep = self._context // 2 if full else self._context
            self._window = self._window[-keep:]
            self._cache.clear()
            tokens = self._window
        with evaluating(self._model):
            h = self._model.hidden(torch.tensor([tokens], device=self._device), self._cache)
            return F.linear(h[0, -1], self._model.output_weight).cpu()


@torch.no_grad()
def lay_out_for_writing(model: GPT) -> None:
    """Turn the wide matrices of a model on a CPU in memory: each token is written in less time.

    Values, shapes and names stay. A token takes as long as reading all matrices does; those with more rows
    than columns are read up to twice as fast by columns, as transformers keeps those of its blocks.
    Whole batches gain nothing from it, and look up embeddings more slowly.
    """
    if model.wte.weight.device.type != "cpu":
        return
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and parameter.size(0) > parameter.size(1) and not name.startswith("wpe"):
            parameter.data = parameter.data.T.contiguous().T
