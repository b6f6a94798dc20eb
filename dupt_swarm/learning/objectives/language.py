"""Language: L1 of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import cast

import torch
from torch import nn

from dupt_swarm.learning.batches import Batch, Blocks, held_out_batches
from dupt_swarm.learning.evaluation import Evaluation, evaluate
from dupt_swarm.learning.mixture import Mixture
from dupt_swarm.learning.objectives.text import LearntFromText, Part
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Manifest


class Language(LearntFromText[Evaluation]):
    """Text to learn language from. See `TrainingObjective`."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, mixture: Mixture) -> None:
        super().__init__(manifest, tokenizer, mixture)
        self._token_bytes = tokenizer.token_bytes()

    @classmethod
    def model(cls, manifest: Manifest) -> GPT:
        return GPT(manifest.model)

    def _read(self, parts: Sequence[Part], sequences: int, first: int) -> Iterator[Batch]:
        return chain.from_iterable(
            held_out_batches(split, self._block_length, sequences, blocks, first)
            for split, blocks in chain.from_iterable(parts)
        )

    def _evaluate(self, model: nn.Module, batches: Iterator[Batch], device: torch.device) -> Evaluation:
        return evaluate(model, cast(Iterator[Blocks], batches), self._token_bytes, device)

    def _quality(self, found: Sequence[Evaluation], shares: Sequence[float]) -> Quality:
        loss = sum(share * one.loss_nats for share, one in zip(shares, found, strict=True))
        bytes_per_token = sum(
            share * one.bytes / one.tokens for share, one in zip(shares, found, strict=True)
        )
        counts = {"tokens": sum(one.tokens for one in found), "bytes": sum(one.bytes for one in found)}
        return Quality(loss, counts, bits_per_byte=loss / math.log(2) / bytes_per_token)
