"""What all objectives that are learnt from tables of examples have in common."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Generic, Self

import torch
from torch import nn

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.interruptible import Look, held_out_sequences, parameter_count
from dupt_swarm.learning.labelled.encoded import Batch, Encoded
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.objectives.training import TrainingObjective
from dupt_swarm.learning.offered import OfferedText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import DataSettings

# An answer tells less of a model than the many tokens of a block of text.
EXAMPLES_PER_BLOCK = 16


def tables_of(settings: DataSettings) -> LabelledFiles:
    """The tables of examples that the settings name.

    Raises:
        UsageError: there is none; or there are several, for which only text has a mixture.
    """
    paths = [one.path for one in settings.corpora if one.path is not None]
    if len(settings.corpora) > 1:
        raise UsageError("examples are one corpus; put the tables into one folder", setting="corpus")
    if not paths:
        raise UsageError(
            "this swarm learns from examples, and offers nothing for it; give tables of them, in .csv .jsonl "
            ".parquet",
            setting="corpus",
        )
    return LabelledFiles(paths[0], settings.columns)


class LearntFromTables(TrainingObjective, Generic[Batch]):
    """Examples to learn from; see `TrainingObjective`.

    An example counts for as many tokens as the context has, however long it is: so a step has the manifest's
    tokens ÷ context examples.

    Attributes:
        examples: all of them, encoded.
    """

    unit = "examples"
    uniform = False  # a batch is as wide as its longest example

    def __init__(self, manifest: Manifest, examples: Encoded[Batch]) -> None:
        self.examples = examples
        self._train, self._held_out = examples.split(manifest.seed)
        self.size = len(self._train)
        self._manifest = manifest
        self.notes = []
        if cut := examples.truncated:
            self.notes.append(
                f"examples with a text that was too long, and was cut: {cut} of {len(examples)}"
            )
        if examples.empty:
            self.notes.append(f"examples left out, for a text of theirs is empty: {examples.empty}")

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
        """See `TrainingObjective`; examples are few, so nothing is kept in ``cache``."""
        del cache, progress, offered
        return cls(manifest, cls._load(manifest, tokenizer, tables_of(settings)))

    @classmethod
    @abstractmethod
    def _load(cls, manifest: Manifest, tokenizer: Tokenizer, files: LabelledFiles) -> Encoded[Batch]:
        """Read, check and encode all examples.

        Raises:
            CorpusError: file, row and remedy.
            UsageError: the settings do not go with the manifest.
        """

    def measure_held_out(
        self, model: nn.Module, device: torch.device, sequences: int, most: int, look: Look, first: int = 0
    ) -> Quality:
        length = self._held_out.length_max
        most = held_out_sequences(EXAMPLES_PER_BLOCK * most, parameter_count(model), length, device)
        chosen = self._held_out.some(self._at_once(most), self._at_once(EXAMPLES_PER_BLOCK * first))
        return self._measure(model, device, chosen, sequences, look)

    def measure_all(
        self, model: nn.Module, device: torch.device, sequences: int, most: int | None, look: Look
    ) -> Quality:
        chosen = self.examples.some(most) if most else self.examples
        return self._measure(model, device, chosen, sequences, look)

    def _measure(
        self, model: nn.Module, device: torch.device, examples: Encoded[Batch], sequences: int, look: Look
    ) -> Quality:
        """That of ``examples``."""
        return self._evaluate(model, examples.in_order(self._at_once(sequences), look), device)

    def _at_once(self, sequences: int) -> int:
        """How many examples have so many sequences."""
        return max(1, sequences // self.examples.sequences_max)
