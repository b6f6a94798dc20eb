"""Language: L1 of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import nn

from dupt_swarm.learning.batches import Batch, Blocks, held_out_batches
from dupt_swarm.learning.evaluation import evaluate
from dupt_swarm.learning.mixture import Mixture
from dupt_swarm.learning.objectives.text import LearntFromText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest


class Language(LearntFromText):
    """Text to learn language from. See `TrainingObjective`."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, mixture: Mixture) -> None:
        super().__init__(manifest, tokenizer, mixture)
        self._token_bytes = tokenizer.token_bytes()

    @classmethod
    def model(cls, manifest: Manifest) -> GPT:
        return GPT(manifest.model)

    def _read(self, splits: Iterable[tuple[Split, int]], sequences: int, first: int) -> Iterator[Batch]:
        return chain.from_iterable(
            held_out_batches(split, self._block_length, sequences, blocks, first) for split, blocks in splits
        )

    def _evaluate(self, model: nn.Module, batches: Iterator[Blocks], device: torch.device) -> Quality:
        found = evaluate(model, batches, self._token_bytes, device)
        return Quality(found.loss_nats, {"tokens": found.tokens, "bytes": found.bytes}, found.bits_per_byte)
