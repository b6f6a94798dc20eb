"""What an oracle is handed: an objective together with this machine's data for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from dupt_swarm.learning.batches import Batch, BatchSource
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.interruptible import Look
from dupt_swarm.learning.left_out import LeftOut
from dupt_swarm.learning.offered import OfferedText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import DataSettings


class TrainingObjective(ABC):
    """One kind of objective, with data of this machine, which never leave it, or of the swarm.

    A part of them is held out.

    Attributes:
        size: how much there is to train on, in ``unit``.
        unit: such as ``tokens``.
        left_out: files that could not be read.
        notes: what else the owner should know of the data, a sentence each.
        uniform: whether all batches have one shape; a model is compiled for one.
    """

    size: int
    unit: str
    left_out: Sequence[LeftOut] = ()
    notes: list[str]
    uniform: bool

    @classmethod
    @abstractmethod
    def model(cls, manifest: Manifest) -> nn.Module:
        """What is trained: `model(*batch)` is a loss. Weights are drawn with seed 0."""

    @classmethod
    @abstractmethod
    def check(cls, manifest: Manifest, settings: DataSettings) -> None:
        """Find out quickly whether the data are of the right kind; they are not read to their end.

        Raises:
            CorpusError: they are not.
            UsageError: the settings do not go with the manifest.
        """

    @classmethod
    @abstractmethod
    def open(
        cls,
        manifest: Manifest,
        tokenizer: Tokenizer,
        settings: DataSettings,
        cache: Path,
        progress: Progress | None = None,
        offered: OfferedText | None = None,
    ) -> Self:
        """Read the data.

        Args:
            manifest: of the swarm.
            tokenizer: likewise.
            settings: where the data are.
            cache: a folder in which tokens may be kept.
            progress: called with (bytes done, bytes in all).
            offered: the text that the swarm offers, if the settings ask for it.

        Raises:
            CorpusError: they cannot be read, or there is too little.
        """

    @abstractmethod
    def batches(self, sequences: int, peer: str) -> tuple[BatchSource, int]:
        """Training data without end, in an order that ``peer`` decides, and how many batches make a step.

        Args:
            sequences: how many a batch may hold at most.
            peer: the id of this one.
        """

    @abstractmethod
    def example(self, sequences: int) -> Batch:
        """A batch as training has them, or smaller, to find out how much room one takes."""

    @abstractmethod
    def measure_held_out(
        self, model: nn.Module, device: torch.device, sequences: int, most: int, look: Look, first: int = 0
    ) -> Quality:
        """How good ``model`` is on what is not trained on.

        Args:
            model: on ``device`` already.
            device: where to compute.
            sequences: how many at once.
            most: on how many blocks of text at most; fewer where that would take long.
            look: called before each batch.
            first: the block to begin with, counted around the end.

        Raises:
            Abandoned: ``look`` raised it.
        """

    @abstractmethod
    def measure_all(
        self, model: nn.Module, device: torch.device, sequences: int, most: int | None, look: Look
    ) -> Quality:
        """The same on all data, for those who train on nothing: on ``most`` blocks or examples at most.

        Of what the swarm offers these are those that are held out.
        """

    @abstractmethod
    def _evaluate(self, model: nn.Module, batches: Iterator[Any], device: torch.device) -> Quality:
        """How good ``model`` is on ``batches``, which are on the CPU; restores its mode afterwards."""
