"""Masked language (MLM), and whether a text follows on another (NSP): what BERT is pre-trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.batches import Batch, held_out_batches, read_blocks
from dupt_swarm.learning.device import autocast, on
from dupt_swarm.learning.epochs import shuffled
from dupt_swarm.learning.evaluation import count_predicted, evaluating
from dupt_swarm.learning.masking import NOTHING, MaskedBatches, MaskedExamples, Masking, text_tokens
from dupt_swarm.learning.mixture import Mixture
from dupt_swarm.learning.objectives.text import LearntFromText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.bert import Bert, at
from dupt_swarm.manifest import Manifest

SAMPLED = 256  # blocks, to find out how much of a text pairs use
LITTLE = 0.5  # of it


class MaskedLanguage(LearntFromText):
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

    def _read(self, splits: Iterable[tuple[Split, int]], sequences: int, first: int) -> Iterator[Batch]:
        """In some order, masked alike each time.

        As in training the block before is not the text before, which would be hard to tell from what follows.
        """
        examples = MaskedExamples(self._masking, self._manifest.seed, "held out", first)
        for split, count in splits:
            numbers = (first + shuffled(count, self._manifest.seed, "held out")) % self._blocks(split)
            for start in range(0, count, sequences):
                chosen = [(split, int(number)) for number in numbers[start : start + sequences]]
                yield examples.batch(read_blocks(chosen, self._block_length)[0])

    @torch.no_grad()
    def _evaluate(self, model: nn.Module, batches: Iterator[Batch], device: torch.device) -> Quality:
        assert isinstance(model, Bert)
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
        sums = torch.stack(found).cpu().double().sum(0).tolist() if found else 3 * [0.0]
        nats, right, count, *of_pairs = sums
        if not count:
            raise CorpusError("there is no held-out text to evaluate on; use a larger corpus")
        loss, nsp_accuracy = nats / count, None
        if of_pairs:
            pair_nats, pairs_right, pair_count = of_pairs
            loss, nsp_accuracy = loss + pair_nats / pair_count, pairs_right / pair_count
        counts = {"masked tokens": int(count)}
        return Quality(loss, counts, accuracy=right / count, nsp_accuracy=nsp_accuracy)

    def _check_pairs(self) -> list[str]:
        """What is to be said of documents that are short.

        Raises:
            CorpusError: no document has two parts.
        """
        pieces = []
        for number, split in enumerate(self.mixture.held_out):
            held_out = held_out_batches(split, self._block_length, 1, SAMPLED)
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
