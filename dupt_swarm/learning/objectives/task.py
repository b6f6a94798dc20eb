"""A task besides language: L3 = L2 + λ·L1 of labelled examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import nn

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.batches import Batch, cut_step
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.interruptible import Look, held_out_sequences, parameter_count, watched
from dupt_swarm.learning.labelled.examples import Examples, LabelledBatches
from dupt_swarm.learning.labelled.files import LABEL, LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.left_out import LeftOut
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.objectives.training import DataSettings
from dupt_swarm.learning.offered import OfferedText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.tasks import TASKS

# An answer tells less of a model than the many tokens of a block of text.
EXAMPLES_PER_BLOCK = 16


def tables_of(settings: DataSettings) -> LabelledFiles:
    """The labelled examples that the settings name.

    Raises:
        UsageError: there is none; or there are several, for which only text has a mixture.
    """
    paths = [one.path for one in settings.corpora if one.path is not None]
    if len(settings.corpora) > 1:
        raise UsageError(
            "a task has one corpus of labelled examples; put the tables into one folder", setting="corpus"
        )
    if not paths:
        raise UsageError(
            "this swarm learns a task, and offers nothing for it; give labelled examples, in .csv .jsonl "
            ".parquet",
            setting="corpus",
        )
    return LabelledFiles(paths[0], settings.columns)


class SupervisedTask:
    """Labelled examples to learn a task from. See `TrainingObjective`.

    An example counts for as many tokens as the context has, however long it is: so a step has the manifest's
    tokens ÷ context examples.

    Attributes:
        examples: all of them, encoded.
    """

    unit = "examples"
    left_out: Sequence[LeftOut] = ()
    uniform = False  # a batch is as wide as its longest example

    def __init__(self, manifest: Manifest, examples: Examples) -> None:
        self.examples = examples
        self._train, self._held_out = examples.split(manifest.seed)
        self.size = len(self._train)
        self._manifest = manifest

    @classmethod
    def model(cls, manifest: Manifest) -> TaskModel:
        return TaskModel(manifest.model, manifest.objective)

    @classmethod
    def check(cls, manifest: Manifest, settings: DataSettings) -> None:
        files = tables_of(settings)
        columns = TASKS[manifest.objective.kind].columns
        files.check_names(columns)
        if next(files.rows([*columns, LABEL]), None) is None:
            raise CorpusError(f"{files.path}: there are no rows; give some examples")

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
        cls.check(manifest, settings)
        files = tables_of(settings)
        model = manifest.model
        examples = load_examples(files, manifest.objective, tokenizer, model.context_length, model=model.kind)
        return cls(manifest, examples)

    @property
    def notes(self) -> list[str]:
        """What was done to examples that did not fit."""
        truncated, left_out = self.examples.truncated, self.examples.left_out
        cut = f"examples with a text that was too long, and was cut: {truncated} of {len(self.examples)}"
        without = f"examples left out, for a text of theirs is empty: {left_out}"
        return [*([cut] if truncated else []), *([without] if left_out else [])]

    def batches(self, sequences: int, peer: str) -> tuple[LabelledBatches, int]:
        batch_size, micro_batches = cut_step(self._manifest, self._at_once(sequences))
        return LabelledBatches(self._train, batch_size, self._manifest.seed, peer), micro_batches

    def example(self, sequences: int) -> Batch:
        return next(self.batches(sequences, "example")[0])

    def measure_held_out(
        self, model: nn.Module, device: torch.device, sequences: int, most: int, look: Look, first: int = 0
    ) -> Quality:
        """See `TrainingObjective`. Each oracle has examples of its own: all begin with the first."""
        del first
        length = self._held_out.length_max
        most = held_out_sequences(EXAMPLES_PER_BLOCK * most, parameter_count(model), length, device)
        return self._measure(model, device, self._held_out, sequences, self._at_once(most), look)

    def measure_all(
        self, model: nn.Module, device: torch.device, sequences: int, most: int | None, look: Look
    ) -> Quality:
        return self._measure(model, device, self.examples, sequences, most or len(self.examples), look)

    def _measure(
        self,
        model: nn.Module,
        device: torch.device,
        examples: Examples,
        sequences: int,
        most: int,
        look: Look,
    ) -> Quality:
        """L2 and the accuracy of the first ``most`` of ``examples``."""
        assert isinstance(model, TaskModel)
        batch_size, count = self._at_once(sequences), min(most, len(examples))
        starts = range(0, count, batch_size)
        batches = (examples.batch(range(start, min(start + batch_size, count))) for start in starts)
        found = evaluate_task(model, watched(batches, len(starts), look), device)
        return Quality(found.loss, {"examples": found.examples}, accuracy=found.accuracy)

    def _at_once(self, sequences: int) -> int:
        """How many examples have so many sequences."""
        return max(1, sequences // self.examples.sequences_max)
