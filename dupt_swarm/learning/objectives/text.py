"""What all objectives that are learnt from text have in common: it is cut into blocks of tokens."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Self

import torch
from torch import nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.batches import (
    Batch,
    Batches,
    BatchSource,
    count_blocks,
    cut_step,
    read_blocks,
)
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.interruptible import Look, held_out_sequences, parameter_count, watched
from dupt_swarm.learning.mixture import Mixture, texts_of, weight_of_offered
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.offered import OfferedBlocks, OfferedText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import DataSettings

Part = Sequence[tuple[Split, int]]  # what is measured as one: splits, and how many blocks of each


class LearntFromText(TrainingObjective):
    """Text to learn from; see `TrainingObjective`.

    Attributes:
        mixture: the tokenised text, of one corpus or several.
    """

    unit = "tokens"
    uniform = True

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, mixture: Mixture) -> None:
        self.mixture = mixture
        self.size = sum(mixture.tokens)
        self.left_out = mixture.left_out
        self._manifest = manifest
        self._block_length = self.block_length(manifest)
        lossy = (
            f"the swarm's tokenizer does not keep text as it is: {tokenizer.lossy}; "
            "what is measured is of the text that it keeps"
        )
        self.notes = [lossy] if tokenizer.lossy else []

    @classmethod
    def block_length(cls, manifest: Manifest) -> int:
        """Tokens of text in a block."""
        return manifest.model.context_length

    @classmethod
    def check(cls, manifest: Manifest, settings: DataSettings) -> None:
        if settings.columns:
            raise UsageError(
                f"swarm {manifest.swarm_id} learns language, and not a task whose examples have columns; "
                "leave the columns out",
                setting="columns",
            )
        if weight_of_offered(settings) is not None and not manifest.offer:
            raise UsageError(
                f"swarm {manifest.swarm_id} offers no text; give your own: a file, folder or glob of .txt "
                ".md .rst .py .jsonl .parquet, or .gz, or a dump of Wikipedia; it never leaves this machine",
                setting="corpus",
            )
        for text in texts_of(settings):
            text.check()

    @classmethod
    def open(
        cls,
        manifest: Manifest,
        tokenizer: Tokenizer,
        settings: DataSettings,
        cache: Path,
        progress: Progress | None = None,
        offered: OfferedText | None = None,
    ) -> Self:
        mixture = Mixture.prepare(
            settings,
            tokenizer,
            cache,
            context_length=cls.block_length(manifest),
            seed=manifest.seed,
            progress=progress,
            offered=offered,
        )
        return cls(manifest, tokenizer, mixture)

    def batches(self, sequences: int, peer: str) -> tuple[BatchSource, int]:
        batch_size, micro_batches = cut_step(self._manifest, sequences)
        mixture, length, seed = self.mixture, self._block_length, self._manifest.seed
        splits = [corpus.train for corpus in mixture.corpora]
        stream = None if mixture.offered is None else OfferedBlocks(mixture.offered, length, seed, peer)
        return Batches(splits, length, batch_size, seed, peer, mixture.weights, stream), micro_batches

    def example(self, sequences: int) -> Batch:
        split = self.mixture.held_out[0]
        blocks = [(split, number % self._blocks(split)) for number in range(sequences)]
        return read_blocks(blocks, self._block_length)

    def measure_held_out(
        self, model: nn.Module, device: torch.device, sequences: int, most: int, look: Look, first: int = 0
    ) -> Quality:
        """See `TrainingObjective`. Each corpus counts for its share of the training."""
        most = held_out_sequences(most, parameter_count(model), self._block_length, device)
        shares = self.mixture.shares
        parts = [
            [(split, min(max(1, round(most * share)), self._blocks(split)))]
            for split, share in zip(self.mixture.held_out, shares, strict=True)
        ]
        return Quality.together(self._measure(model, device, sequences, parts, look, first), shares)

    def measure_all(
        self, model: nn.Module, device: torch.device, sequences: int, most: int | None, look: Look
    ) -> Quality:
        """See `TrainingObjective`. Each token counts the same."""
        part, left = [], sys.maxsize if most is None else most
        trained_on = (corpus.train for corpus in self.mixture.corpora)
        for split in (*trained_on, *self.mixture.held_out):
            blocks = min(left, self._blocks(split))
            part.append((split, blocks))
            left -= blocks
        return Quality.together(self._measure(model, device, sequences, [part], look), [1.0])

    @abstractmethod
    def _read(self, splits: Iterable[tuple[Split, int]], sequences: int, first: int) -> Iterator[Batch]:
        """So many blocks of each split, from the ``first`` on, ``sequences`` at a time at most."""

    def _measure(
        self,
        model: nn.Module,
        device: torch.device,
        sequences: int,
        parts: Sequence[Part],
        look: Look,
        first: int = 0,
    ) -> list[Quality]:
        """How good it is on each part."""
        counts = [sum(-(-blocks // sequences) for _, blocks in part) for part in parts]
        splits = chain.from_iterable(parts)
        batches = watched(self._read(splits, sequences, first), sum(counts), look)
        return [self._evaluate(model, islice(batches, count), device) for count in counts]

    def _blocks(self, split: Split) -> int:
        return count_blocks(split, self._block_length)
