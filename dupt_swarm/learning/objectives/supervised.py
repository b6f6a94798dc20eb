"""L2, the likelihood of the answers, and L3 = L2 + λ·L1 (Radford et al. 2018, section 3.2).

As in the code that was published with GPT-1, both are means: L2 over examples, L1 over sequences of the mean
over a sequence's tokens. An example's sequences are averaged first where their number differs, so a batch's
loss is the mean of its examples', however it is cut into micro-batches.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from dupt_swarm.learning.decoder.cross_entropy import linear_cross_entropy


def classification_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """−L2 ÷ B: the mean of −log softmax(logits)[label], in nats.

    Args:
        logits: fp32 [B, outputs].
        labels: int64 [B].
    """
    return F.cross_entropy(logits, labels)


def regression_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean squared error of scores [B, 1] from ``labels`` [B]."""
    return F.mse_loss(logits.squeeze(1), labels)


def auxiliary_loss(h: Tensor, embedding: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
    """−L1, in nats: the mean over examples of the mean over their sequences of the mean over their tokens.

    Special tokens are predicted like others, the first token of a sequence is not, padding never.

    Args:
        h: [B·S, T, C], what the last block gives.
        embedding: W_e, [V, C].
        tokens: int64 [B, S, T].
        lengths: int64 [B, S]; 0 for a sequence that is not there.
    """
    T = tokens.size(2)
    sequences = (lengths > 0).sum(1, keepdim=True)  # of each example
    share = 1.0 / (len(tokens) * sequences * (lengths - 1).clamp(min=1))  # of each token in the mean
    predicted = torch.arange(1, T, device=tokens.device) < lengths.unsqueeze(2)  # [B, S, T − 1]
    return linear_cross_entropy(
        h[:, :-1][predicted.flatten(0, 1)],
        embedding,
        tokens[:, :, 1:][predicted],
        share.unsqueeze(2).expand_as(predicted)[predicted],
    )


def combined_loss(supervised: Tensor, language: Tensor, lm_weight: float) -> Tensor:
    """−L3 from −L2 and −L1, with λ = ``lm_weight``."""
    return supervised + lm_weight * language
