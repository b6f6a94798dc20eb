"""The loss of a model on held-out text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.device import autocast, on

LOGITS_AT_ONCE = 1 << 24  # in fp32; 64 MiB


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        loss_nats: mean negative log likelihood per token, in nats.
        bits_per_byte: the same total in bits, per byte of the targets' text: comparable between tokenizers.
        tokens: how many targets were predicted.
        bytes: the length of their text in UTF-8.
    """

    loss_nats: float
    bits_per_byte: float
    tokens: int
    bytes: int

    @classmethod
    def of(cls, nats: float, tokens: int, text_bytes: int) -> Self:
        """That of so many tokens and bytes, none of them 0, whose −log P is ``nats`` together."""
        return cls(nats / tokens, nats / math.log(2) / text_bytes, tokens, text_bytes)

    @property
    def perplexity(self) -> float:
        """See `perplexity`."""
        return perplexity(self.loss_nats)


def perplexity(loss_nats: float) -> float:
    """exp(nats per token); infinite where that is too large for a float."""
    try:
        return math.exp(loss_nats)
    except OverflowError:
        return math.inf


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, ``model`` is in evaluation mode; afterwards in the one that it was in."""
    if not model.training:  # to look through all its modules would take a while for each token that it writes
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    token_bytes: np.ndarray[tuple[int], np.dtype[np.integer]] | Tensor,
    device: torch.device,
) -> Evaluation:
    """The loss over all targets of ``batches``, every token weighted equally, whatever the batches' sizes.

    Restores the model's mode afterwards.

    Args:
        model: ``model(inputs, targets)`` gives the mean loss in nats; on ``device`` already.
        batches: ``(inputs, targets)``, int64 [B, T] each, on the CPU.
        token_bytes: [V], how many bytes of text each token stands for.

    Raises:
        CorpusError: there is no text in the batches.
    """
    lengths = torch.as_tensor(token_bytes, dtype=torch.int64, device="cpu")
    losses: list[Tensor] = []  # on the device, read at the end: reading would wait for each batch
    counts: list[int] = []
    text_bytes = 0
    with evaluating(model):
        for inputs, targets in batches:
            with autocast(device):
                losses.append(model(on(device, inputs), on(device, targets)))
            counts.append(targets.numel())
            text_bytes += int(lengths[targets].sum())
    if not text_bytes:
        raise CorpusError("there is no held-out text to evaluate on; use a larger corpus")
    nats = sum(loss.item() * count for loss, count in zip(losses, counts, strict=True))
    return Evaluation.of(nats, sum(counts), text_bytes)


def count_predicted(
    h: Tensor, targets: Tensor, logits_of: Callable[[Tensor], Tensor], vocabulary_size: int
) -> Tensor:
    """How well all ``targets`` are predicted, in pieces that fit in memory; waits for nothing.

    Args:
        h: [N, C], from which they are predicted.
        targets: int64 [N].
        logits_of: [n, C] to [n, V].
        vocabulary_size: V.

    Returns:
        fp32 [3] on the device: −log P of all together in nats, how many were the likeliest, and N.
    """
    found = torch.zeros(3, device=h.device)  # Apple GPUs have no fp64
    rows = max(1, LOGITS_AT_ONCE // vocabulary_size)
    for part, wanted in zip(torch.split(h, rows), torch.split(targets, rows), strict=True):
        with autocast(h.device):
            logits = logits_of(part)
        found[0] += F.cross_entropy(logits.float(), wanted, reduction="sum")
        found[1] += (logits.argmax(1) == wanted).sum()
    found[2] = len(targets)
    return found
