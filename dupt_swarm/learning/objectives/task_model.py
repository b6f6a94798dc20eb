"""A decoder or encoder with a linear head W_y: P(y | x¹…x^m) = softmax(h_l^m·W_y), for L3 = L2 + λ·L1.

Radford et al. 2018, section 3.2. As in the code that was published with GPT-1, both are means: L2 over
examples, L1 over sequences of the mean over a sequence's tokens. An example's sequences are averaged first
where their number differs, so a batch's loss is the mean of its examples', however it is cut into
micro-batches. Shapes: B examples of S sequences (their inputs in different forms), T tokens each, C = width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.learning.answers import build_answer
from dupt_swarm.learning.transformer.bert import Bert
from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model, Objective
from dupt_swarm.manifest.model import ModelKind

BACKBONES: dict[ModelKind, type[GPT] | type[Bert]] = {"decoder": GPT, "encoder": Bert}
"""What a task's model reads with."""


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


HEAD_SEED = 1 << 31  # added to the model's, or W_y would repeat W_e; PyTorch reads 32 bits of a seed


class TaskModel(nn.Module):
    """A decoder or encoder and W_y, drawn with seed 0 (`init_weights` draws others).

    Attributes:
        backbone: the model of language; a decoder has rows of W_e for start, delimiter and extract.
        head: W_y, with a bias as in the code that was published with GPT-1.
    """

    def __init__(self, config: Model, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
        self.answer = build_answer(objective)
        self.backbone = BACKBONES[config.kind](config)
        self.head = nn.Linear(config.width, self.answer.outputs)
        self.init_weights(0)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draw the backbone's weights, and W_y from N(0, init_std) with a zero bias."""
        self.backbone.init_weights(seed)
        if self.head.weight.is_meta:
            return
        generator = torch.Generator().manual_seed(HEAD_SEED + seed)
        drawn = torch.empty(self.head.weight.shape).normal_(
            0.0, self.backbone.config.init_std, generator=generator
        )
        self.head.weight.copy_(drawn)
        self.head.bias.zero_()

    def forward(self, tokens: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """−L3 ÷ B: the mean loss of the examples, each of which counts alike.

        Args:
            tokens: int64 [B, S, T], each sequence from its start to its extract token, then anything.
            lengths: int64 [B, S], how many tokens are real; 0 for a sequence that is not there.
            labels: [B], int64 label or choice, or an fp32 score.

        Returns:
            An fp32 scalar in nats (for a score: its squared error, plus nats).
        """
        h = self.backbone.read(tokens.flatten(0, 1), lengths.flatten())
        answered = self.answer.loss(self._logits(h, lengths), labels)
        if not self.objective.lm_weight:
            return answered
        assert isinstance(self.backbone, GPT), "the manifest has seen to it"
        language = auxiliary_loss(h, self.backbone.output_weight, tokens, lengths)
        return answered + self.objective.lm_weight * language

    def logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """fp32 [B, labels], [B, choices] (−∞ for one that is not there), or scores [B, 1].

        ``tokens`` and ``lengths`` are as in `forward`.
        """
        return self._logits(self.backbone.read(tokens.flatten(0, 1), lengths.flatten()), lengths)

    def _logits(self, h: Tensor, lengths: Tensor) -> Tensor:
        extracted = self.backbone.summary(h, lengths.flatten()).view(*lengths.shape, -1)  # [B, S, C]
        # One mask for all sequences of an example, as in the code that was published with GPT-1.
        kept = F.dropout(
            torch.ones_like(extracted[:, :1], dtype=torch.float32),
            self.objective.head_dropout,
            self.training,
        )
        with torch.autocast(h.device.type, enabled=False):  # small, and its rounding would show in ties
            return self.answer.logits(self.head, extracted.float() * kept, lengths > 0)
