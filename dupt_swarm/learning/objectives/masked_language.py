"""Masked language (MLM), and whether a text follows on another (NSP): what BERT is pre-trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.batches import Batch, held_out_batches, read_blocks
from dupt_swarm.learning.device import autocast, on
from dupt_swarm.learning.epochs import shuffled
from dupt_swarm.learning.evaluation import count_predicted, evaluating
from dupt_swarm.learning.masking import NOTHING, MaskedBatches, MaskedExamples, Masking, text_tokens
from dupt_swarm.learning.mixture import Mixture
from dupt_swarm.learning.objectives.text import LearntFromText, Part
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.bert import Bert, at
from dupt_swarm.manifest import Manifest

SAMPLED = 256  # blocks, to find out how much of a text pairs use
LITTLE = 0.5  # of it


@dataclass(frozen=True)
class MaskedEvaluation:
    """How well masked tokens, and texts that follow, are predicted.

    Attributes:
        nats: −log P of all masked tokens together.
        tokens: how many there were.
        right: of how many the likeliest token was it.
        pairs: of how many texts it was to be said whether they follow; 0: of none.
        pair_nats: −log P of all those answers together.
        pairs_right: how many were right.
    """

    nats: float
    tokens: int
    right: int
    pairs: int = 0
    pair_nats: float = 0.0
    pairs_right: int = 0

    @property
    def loss(self) -> float:
        """What training brings down: the mean of a masked token, plus that of an answer, in nats."""
        return self.nats / self.tokens + (self.pair_nats / self.pairs if self.pairs else 0.0)


class MaskedLanguage(LearntFromText[MaskedEvaluation]):
    """Text to predict its masked tokens from. See `TrainingObjective`.

    It is cut into blocks as for a decoder. Without pairs a block may go over from one document to the next,
    with what the tokenizer puts between them, such as [SEP]; of two texts each comes from one document.
    """

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, mixture: Mixture) -> None:
        self._masking = Masking(manifest, tokenizer)
        super().__init__(manifest, tokenizer, mixture)
        if self._masking.pairs:
            self.notes += self._check_pairs()

    @classmethod
    def model(cls, manifest: Manifest) -> Bert:
        return Bert(manifest.model)

    @classmethod
    def block_length(cls, manifest: Manifest) -> int:
        return text_tokens(manifest)

    def batches(self, sequences: int, peer: str) -> tuple[MaskedBatches, int]:
        blocks, micro_batches = super().batches(sequences, peer)
        return MaskedBatches(blocks, MaskedExamples(self._masking, self._manifest.seed, peer)), micro_batches

    def example(self, sequences: int) -> Batch:
        return MaskedExamples(self._masking, 0, "example").batch(super().example(sequences)[0])

    def _read(self, parts: Sequence[Part], sequences: int, first: int) -> Iterator[Batch]:
        """In some order, masked alike each time.

        As in training the block before is not the text before, which would be hard to tell from what follows.
        """
        examples = MaskedExamples(self._masking, self._manifest.seed, "held out", first)
        for split, count in chain.from_iterable(parts):
            numbers = (first + shuffled(count, self._manifest.seed, "held out")) % self._blocks(split)
            for start in range(0, count, sequences):
                chosen = [(split, int(number)) for number in numbers[start : start + sequences]]
                yield examples.batch(read_blocks(chosen, self._block_length)[0])

    def _evaluate(self, model: nn.Module, batches: Iterator[Batch], device: torch.device) -> MaskedEvaluation:
        assert isinstance(model, Bert)
        return evaluate_masked(model, batches, device)

    def _quality(self, found: Sequence[MaskedEvaluation], shares: Sequence[float]) -> Quality:
        together = list(zip(shares, found, strict=True))
        pairs = found[0].pairs > 0
        return Quality(
            sum(share * one.loss for share, one in together),
            {"masked tokens": sum(one.tokens for one in found)},
            accuracy=math.fsum(share * one.right / one.tokens for share, one in together),
            nsp_accuracy=math.fsum(share * one.pairs_right / one.pairs for share, one in together)
            if pairs
            else None,
        )

    def _check_pairs(self) -> list[str]:
        """What is to be said of documents that are short.

        Raises:
            CorpusError: no document has two parts.
        """
        pieces = []
        for number, component in enumerate(self.mixture.components):
            held_out = held_out_batches(component.held_out, self._block_length, 1, SAMPLED)
            found = [len(self._masking.piece_in(inputs[0].numpy())) for inputs, _ in held_out]
            if max(found) < 2:
                raise CorpusError(
                    f"corpus {number + 1}: no text has two parts, of which one could follow the other: "
                    "each is a single token; give documents of several sentences, or take part in a "
                    "swarm with objective.nsp = false",
                    setting="corpus",
                )
            pieces += found
        used = sum(pieces) / (len(pieces) * self._block_length)
        if used >= LITTLE:
            return []
        return [
            f"its documents are short: pairs of texts use {100 * used:.0f} % of a block, the rest is "
            "padding; with objective.nsp = false a swarm would use all"
        ]


@torch.no_grad()
def evaluate_masked(model: Bert, batches: Iterable[Batch], device: torch.device) -> MaskedEvaluation:
    """Predict the masked tokens of ``batches``, and in pairs what follows; restores the model's mode.

    Args:
        model: on ``device`` already.
        batches: see `MaskedExamples`, on the CPU.
        device: where to compute.

    Raises:
        CorpusError: there is no masked token in them.
    """
    found: list[Tensor] = []  # on the device, read at the end: reading would wait for each batch
    with evaluating(model):
        for batch in batches:
            tokens, places, targets, *pairs = (on(device, tensor) for tensor in batch)
            with autocast(device):
                h = model.hidden(tokens, pairs[0] if pairs else None)
            there = targets != NOTHING
            rows = at(h, places)[there]
            figures = count_predicted(rows, targets[there], model.masked_logits, len(model.wte.weight))
            if pairs:
                summary = model.summary(h)
                figures = torch.cat((figures, count_predicted(summary, pairs[1], model.follows, 2)))
            found.append(figures)
    nats, right, count, *of_pairs = (
        torch.stack(found).cpu().double().sum(0).tolist() if found else (0.0, 0.0, 0.0)
    )
    if not count:
        raise CorpusError("there is no held-out text to evaluate on; use a larger corpus")
    pair_nats, pairs_right, pair_count = of_pairs or (0.0, 0.0, 0.0)
    return MaskedEvaluation(nats, int(count), int(right), int(pair_count), pair_nats, int(pairs_right))
