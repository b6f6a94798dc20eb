"""A task besides language: L3 = L2 + λ·L1 of labelled examples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.batches import cut_step
from dupt_swarm.learning.labelled.encoded import EncodedBatches
from dupt_swarm.learning.labelled.examples import ExampleBatch, Examples
from dupt_swarm.learning.labelled.files import LABEL, LabelledFiles
from dupt_swarm.learning.labelled.load import load_examples
from dupt_swarm.learning.objectives.scores import evaluate_task
from dupt_swarm.learning.objectives.tables import LearntFromTables, tables_of
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.quality import Quality
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import DataSettings
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
    def _load(cls, manifest: Manifest, tokenizer: Tokenizer, files: LabelledFiles) -> Examples:
        return load_examples(files, manifest, tokenizer)

    def batches(self, sequences: int, peer: str) -> tuple[EncodedBatches[ExampleBatch], int]:
        batch_size, micro_batches = cut_step(self._manifest, self._at_once(sequences))
        return EncodedBatches(self._train, batch_size, self._manifest.seed, peer), micro_batches

    def example(self, sequences: int) -> ExampleBatch:
        return next(EncodedBatches(self._train, self._at_once(sequences), self._manifest.seed, "example"))

    def _evaluate(self, model: nn.Module, batches: Iterator[ExampleBatch], device: torch.device) -> Quality:
        """L2 and the accuracy."""
        assert isinstance(model, TaskModel)
        found = evaluate_task(model, batches, device)
        return Quality(found.loss, {"examples": found.examples}, accuracy=found.accuracy)
