"""A text for a text: the loss of targets, each token predicted from its source and what came before.

Translation is the paper's (Vaswani et al. 2017); anything that a table of pairs shows can be learnt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.batches import cut_step
from dupt_swarm.learning.device import autocast, on
from dupt_swarm.learning.evaluation import count_predicted, evaluating
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.pairs import PairBatch, PairBatches, Pairs, load_pairs, read_rows
from dupt_swarm.learning.objectives.tables import LearntFromTables, tables_of
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder, real_positions
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import DataSettings


class Seq2Seq(LearntFromTables[PairBatch]):
    """Pairs of texts to learn from. See `TrainingObjective`."""

    examples: Pairs
    _train: Pairs

    @classmethod
    def model(cls, manifest: Manifest) -> EncoderDecoder:
        return EncoderDecoder(manifest.model, manifest.objective.label_smoothing)

    @classmethod
    def check(cls, manifest: Manifest, settings: DataSettings) -> None:
        del manifest
        files = tables_of(settings)
        if next(read_rows(files), None) is None:
            raise CorpusError(f"{files.path}: there are no rows; give some pairs of texts")

    @classmethod
    def _load(cls, manifest: Manifest, tokenizer: Tokenizer, files: LabelledFiles) -> Pairs:
        return load_pairs(files, tokenizer, manifest.model.context_length)

    def batches(self, sequences: int, peer: str) -> tuple[PairBatches, int]:
        batch_size, micro_batches = cut_step(self._manifest, self._at_once(sequences))
        step = batch_size * micro_batches
        return PairBatches(self._train, batch_size, step, self._manifest.seed, peer), micro_batches

    def example(self, sequences: int) -> PairBatch:
        """See `TrainingObjective`. The longest sources with the longest targets: no batch takes more."""
        return self._train.longest(self._at_once(sequences))

    def _evaluate(self, model: nn.Module, batches: Iterator[PairBatch], device: torch.device) -> Quality:
        assert isinstance(model, EncoderDecoder)
        return evaluate_pairs(model, batches, device)


@torch.no_grad()
def evaluate_pairs(model: EncoderDecoder, batches: Iterable[PairBatch], device: torch.device) -> Quality:
    """How well targets are predicted, each token from those before it: the loss is not smoothed.

    All tokens count alike, whatever the batches' sizes. Restores the model's mode afterwards.

    Args:
        model: on ``device`` already.
        batches: of `Pairs`, on the CPU.
        device: where to compute.

    Raises:
        CorpusError: there are no pairs.
    """
    counted: list[Tensor] = []  # on the device, read at the end: reading would wait for each batch
    pairs = 0
    with evaluating(model):
        for batch in batches:
            source, source_lengths, inputs, targets, lengths, _ = (on(device, tensor) for tensor in batch)
            with autocast(device):
                h = model.hidden(inputs, model.encode(source, source_lengths))
            real = real_positions(inputs, lengths)
            weight = model.output_weight
            counted.append(
                count_predicted(h[real], targets[real], partial(F.linear, weight=weight), len(weight))
            )
            pairs += len(lengths)
    if not counted:
        raise CorpusError("there are no pairs of texts to evaluate on; give some")
    nats, right, tokens = torch.stack(counted).cpu().double().sum(0).tolist()
    return Quality(nats / tokens, {"examples": pairs, "tokens": int(tokens)}, accuracy=right / tokens)
