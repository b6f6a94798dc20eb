"""How good a model is, on data that it is not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Quality:
    """The result of a measurement: of language, of texts written for others, or of a task.

    Attributes:
        loss_nats: mean negative log likelihood per token, per token of a target, or per masked one, plus
            that of whether a text follows; of a task −L2 per example, or its scores' mean squared error.
        counts: what it was measured on, by unit: tokens and bytes of text, or examples.
        bits_per_byte: of text, comparable between tokenizers; None for anything else.
        accuracy: the share of right answers, of masked tokens that were predicted, or of right tokens of
            targets, 0 to 1; None for a decoder's text, and for a task whose answers are scores.
        nsp_accuracy: of the answers to whether a text follows on another; None: that is not learnt.
    """

    loss_nats: float
    counts: dict[str, int]
    bits_per_byte: float | None = None
    accuracy: float | None = None
    nsp_accuracy: float | None = None

    @classmethod
    def together(cls, parts: Sequence[Quality], shares: Sequence[float]) -> Quality:
        """That of several measurements of one kind, each of which counts for its share."""

        def mean(values: Iterable[float | None]) -> float | None:
            known = [share * value for share, value in zip(shares, values, strict=True) if value is not None]
            return math.fsum(known) if known else None

        loss = math.fsum(share * one.loss_nats for share, one in zip(shares, parts, strict=True))
        bytes_per_token = mean(one.bytes_per_token for one in parts)
        return cls(
            loss,
            {unit: sum(one.counts[unit] for one in parts) for unit in parts[0].counts},
            bits_per_byte=bytes_per_token and loss / math.log(2) / bytes_per_token,
            accuracy=mean(one.accuracy for one in parts),
            nsp_accuracy=mean(one.nsp_accuracy for one in parts),
        )

    @property
    def bytes_per_token(self) -> float | None:
        """Of text; None for anything else."""
        return self.counts["bytes"] / self.counts["tokens"] if "bytes" in self.counts else None
