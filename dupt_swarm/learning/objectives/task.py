"""A task besides language: L3 = L2 + λ·L1 of labelled examples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import torch
from torch import nn

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.batches import cut_step
from dupt_swarm.learning.corpus import Progress
from dupt_swarm.learning.labelled.encoded import EncodedBatches
from dupt_swarm.learning.labelled.examples import ExampleBatch
from dupt_swarm.learning.labelled.files import LABEL
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.tables import LearntFromTables, tables_of
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.objectives.training import DataSettings
from dupt_swarm.learning.offered import OfferedText
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.tasks import TASKS


class SupervisedTask(LearntFromTables[ExampleBatch]):
    """Labelled examples to learn a task from. See `TrainingObjective`."""

    @classmethod
    def model(cls, manifest: Manifest) -> TaskModel:
        return TaskModel(manifest.model, manifest.objective)

    @classmethod
    def check(cls, manifest: Manifest, settings: DataSettings) -> None:
        files = tables_of(settings)
        columns = [*TASKS[manifest.objective.kind].columns, LABEL]
        files.check_names(columns)
        if next(files.rows(columns), None) is None:
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

    def batches(self, sequences: int, peer: str) -> tuple[EncodedBatches[ExampleBatch], int]:
        batch_size, micro_batches = cut_step(self._manifest, self._at_once(sequences))
        return EncodedBatches(self._train, batch_size, self._manifest.seed, peer), micro_batches

    def example(self, sequences: int) -> ExampleBatch:
        return next(self.batches(sequences, "example")[0])

    def _quality(self, model: nn.Module, batches: Iterator[ExampleBatch], device: torch.device) -> Quality:
        """L2 and the accuracy."""
        assert isinstance(model, TaskModel)
        found = evaluate_task(model, batches, device)
        return Quality(found.loss, {"examples": found.examples}, accuracy=found.accuracy)
