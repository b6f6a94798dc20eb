"""Language: L1 of a text, cut into blocks of tokens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Self

import torch
from torch import nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.batches import Batches, count_blocks, cut_step, held_out_batches
from dupt_swarm.learning.corpus import Corpus, Progress
from dupt_swarm.learning.evaluation import evaluate
from dupt_swarm.learning.interruptible import Look, held_out_sequences, parameter_count, watched
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.learning.objectives.training import DataSettings
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.shards import Split
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest


class Language:
    """Text to learn language from. See `TrainingObjective`.

    Attributes:
        corpus: the tokenised text.
    """

    unit = "tokens"
    uniform = True

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, corpus: Corpus) -> None:
        self.corpus = corpus
        self.size = len(corpus.train)
        self.left_out: Sequence[LeftOut] = corpus.left_out
        self._manifest = manifest
        self._context_length = manifest.model.context_length
        self._token_bytes = tokenizer.token_bytes()
        self.notes: Sequence[str] = (
            [
                f"the swarm's tokenizer does not keep text as it is: {tokenizer.lossy}; "
                "bits per byte are of the text that it keeps"
            ]
            if tokenizer.lossy
            else []
        )

    @classmethod
    def check(cls, manifest: Manifest, settings: DataSettings) -> None:
        """See `TrainingObjective`."""
        if settings.columns:
            raise UsageError(
                f"swarm {manifest.swarm_id} learns language, and not a task whose examples have columns; "
                "leave the columns out",
                setting="columns",
            )
        TextFiles(settings.corpus, settings.field, settings.strict).check()

    @classmethod
    def open(
        cls,
        manifest: Manifest,
        tokenizer: Tokenizer,
        settings: DataSettings,
        cache: Path,
        progress: Progress | None,
    ) -> Self:
        """See `TrainingObjective`."""
        corpus = Corpus.prepare(
            TextFiles(settings.corpus, settings.field, settings.strict),
            tokenizer,
            cache,
            context_length=manifest.model.context_length,
            seed=manifest.seed,
            progress=progress,
        )
        return cls(manifest, tokenizer, corpus)

    def batches(self, sequences: int, peer: str) -> tuple[Batches, int]:
        """See `TrainingObjective`."""
        batch_size, micro_batches = cut_step(self._manifest, sequences)
        source = Batches(self.corpus.train, self._context_length, batch_size, self._manifest.seed, peer)
        return source, micro_batches

    def measure_held_out(
        self, model: nn.Module, device: torch.device, sequences: int, most: int, look: Look
    ) -> Quality:
        """See `TrainingObjective`."""
        most = held_out_sequences(most, parameter_count(model), self._context_length, device)
        blocks = count_blocks(self.corpus.held_out, self._context_length)
        return self._measure(model, device, sequences, [(self.corpus.held_out, min(most, blocks))], look)

    def measure_all(
        self, model: nn.Module, device: torch.device, sequences: int, most: int | None, look: Look
    ) -> Quality:
        """See `TrainingObjective`."""
        parts, left = [], sys.maxsize if most is None else most
        for split in (self.corpus.train, self.corpus.held_out):
            blocks = min(left, count_blocks(split, self._context_length))
            parts.append((split, blocks))
            left -= blocks
        return self._measure(model, device, sequences, parts, look)

    def _measure(
        self,
        model: nn.Module,
        device: torch.device,
        sequences: int,
        parts: Sequence[tuple[Split, int]],
        look: Look,
    ) -> Quality:
        """The loss on the first blocks of each part."""
        batches = chain.from_iterable(
            held_out_batches(split, self._context_length, sequences, blocks) for split, blocks in parts
        )
        count = sum(-(-blocks // sequences) for _, blocks in parts)
        found = evaluate(model, watched(batches, count, look), self._token_bytes, device)
        counts = {"tokens": found.tokens, "bytes": found.bytes}
        return Quality(found.loss_nats, counts, bits_per_byte=found.bits_per_byte)
