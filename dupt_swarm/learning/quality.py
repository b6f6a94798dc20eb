"""How good a model is, on data that it is not trained on."""

from __future__ import annotations

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
