"""`Finetuner`: a saved model learns a task, and becomes another saved model."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from dupt_swarm.checkpoint import REPLICA_FILE
from dupt_swarm.disk.home import expanded
from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.answers import require_scores
from dupt_swarm.learning.device import choose_device
from dupt_swarm.learning.finetuning.loop import Epoch, FineTuning, Moment
from dupt_swarm.learning.finetuning.progress import Progress, check_same
from dupt_swarm.learning.finetuning.settings import FinetuningSettings
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.learning.labelled.files import LABEL, LabelledFiles
from dupt_swarm.learning.labelled.load import learn_labels, load_examples
from dupt_swarm.learning.objectives import build_outline
from dupt_swarm.learning.objectives.start import begin_from, task_manifest
from dupt_swarm.learning.objectives.task_model import TaskModel
from dupt_swarm.learning.threads import threads_to_spare
from dupt_swarm.manifest import Objective
from dupt_swarm.manifest.layout import layout_of
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.manifest.tables import LM_WEIGHTS
from dupt_swarm.models.saved_model import (
    SavedModel,
    check_vacant,
    new_model_folder,
    write_shared,
    writing_model,
)
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.tasks import TASKS, Task
from dupt_swarm.version import VERSION

FINETUNING_FILE = "finetuning.json"


@dataclass(frozen=True)
class LabelledTask:
    """What is to be learnt, and from what.

    Attributes:
        kind: as in the manifest's objective.
        train: labelled examples to learn from.
        valid: labelled examples by which the best epoch is chosen.
        labels: in the order of W_y; none: those of ``train``.
        lm_weight: λ, the weight of L1 beside L2; None: the usual one of such a model.
    """

    kind: str
    train: LabelledFiles
    valid: LabelledFiles
    labels: tuple[str, ...] = ()
    lm_weight: float | None = None

    def objective(self, model: ModelKind) -> Objective:
        """The manifest's objective, for a model of this kind.

        Its labels are learnt from the training examples if need be.

        Raises:
            CorpusError: they cannot be learnt.
            UsageError: the columns, the labels or λ do not go with the task.
        """
        task = _task(self.kind)
        for files in (self.train, self.valid):
            files.check_names([*task.columns, LABEL])
        labels = list(self.labels) or learn_labels(self.train, task)
        lm_weight = LM_WEIGHTS[model] if self.lm_weight is None else self.lm_weight
        try:
            return Objective(kind=self.kind, labels=labels, lm_weight=lm_weight)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise UsageError(f"{self.kind}: {reason}", setting=("labels", "lm_weight")) from error


def _task(kind: str) -> Task:
    if kind not in TASKS:
        raise UsageError(f"there is no task {kind!r}; choose one of {', '.join(TASKS)}", setting="kind")
    return TASKS[kind]


class Finetuner:
    """Fine-tunes a saved model into a new folder; killed at any time, it goes on where it was.

    Until the result is complete, all lies in ``<out>.unfinished``.

    Attributes:
        manifest: of the result.
        train: the training examples.
        valid: the validation examples.
        device: where it computes.
        report: the content of the result's finetuning.json; None until it is complete.
    """

    def __init__(
        self,
        base: SavedModel,
        task: LabelledTask,
        out: Path,
        settings: FinetuningSettings | None = None,
        device: str = "auto",
        threads: int | None = None,
    ) -> None:
        """Read and check everything; nothing is written yet.

        Args:
            base: the model to begin with.
            task: what it shall learn.
            out: the folder of the result.
            settings: how.
            device: where to compute.
            threads: on a CPU; None: those with which it was begun, or as many as the machine now has room
                for. The result depends on them, as they decide how sums are rounded.

        Raises:
            DuptError: what cannot be used, and the remedy.
        """
        require_scores()  # not to be missed after an hour of training
        self._base, self._task = base, task
        self._settings, self._threads = settings or FinetuningSettings(), threads
        self.device = choose_device(device)
        self.manifest = task_manifest(base.manifest, task.objective(base.manifest.model.kind))
        self.train, self.valid = self._load(task.train), self._load(task.valid)
        self._check_variety()
        self._begun_with = self._describe()
        self._out = expanded(out).absolute()
        self._progress = Progress(self._out.with_name(f"{self._out.name}.unfinished"), self._begun_with)
        self.report = self._read_report()

    def run(self, on_moment: Callable[[Moment], object] = lambda _: None) -> bool:
        """Train to the end, and write the result; whether it was not stopped before.

        Args:
            on_moment: called before each micro-batch; may raise `Abandoned` to stop and save.

        Raises:
            DuptError: another process is at it, the disk is full, or the loss is not finite.
        """
        if self.report is None:
            with self._progress.locked():
                self.report = self._read_report()  # another process may have been there until now
                if self.report is None:
                    saved = self._progress.load()
                    threads = self._threads or (saved["threads"] if saved else threads_to_spare())
                    with keep_threads(threads):
                        if not self._learn(saved, threads, on_moment):
                            return False
        shutil.rmtree(self._progress.folder, ignore_errors=True)
        return True

    def _learn(
        self, saved: dict[str, Any] | None, threads: int, on_moment: Callable[[Moment], object]
    ) -> bool:
        base = self._base.build(torch.device("cpu"))
        model = begin_from(base, self.manifest, self._settings.seed).to(self.device)
        assert isinstance(model, TaskModel)
        learning = FineTuning(model, self.train, self.valid, self._settings, self.device)
        if saved is not None:
            learning.load_state_dict(saved["learning"])

        def save(state: dict[str, Any]) -> None:
            self._progress.save({"learning": state, "threads": threads})

        try:
            best = learning.run(on_moment, save)
        except Abandoned:
            save(learning.state_dict())
            return False
        assert learning.best_parameters is not None
        self._write(learning.best_parameters, learning.epochs, best, threads)
        return True

    def _load(self, files: LabelledFiles) -> Examples:
        return load_examples(files, self.manifest, self._base.tokenizer)

    def _check_variety(self) -> None:
        """A head that sees one label only learns to say that, whatever it is asked."""
        labels = self.manifest.objective.labels
        if labels and len(found := set(self.train.labels.tolist())) < 2:
            raise CorpusError(
                f"{self._task.train.path}: each of the {len(self.train)} rows has the label "
                f"{labels[found.pop()]!r}; there is nothing to tell apart: give examples of another too"
            )

    def _describe(self) -> dict[str, Any]:
        """What decides on the result, in words for messages."""
        objective, settings = self.manifest.objective, self._settings
        return {
            "base model": self._base.state.digest,
            "task": objective.kind,
            "labels": ", ".join(objective.labels) or "none",
            "λ": objective.lm_weight,
            "epochs": settings.epochs,
            "learning rate": settings.learning_rate,
            "batch size": settings.batch_size,
            "seed": settings.seed,
            "training examples": self.train.digest(),
            "validation examples": self.valid.digest(),
            "manifest": self.manifest.sha256,
            "other settings": json.dumps(asdict(settings)),
        }

    def _read_report(self) -> dict[str, Any] | None:
        """That of a result which is there already.

        Raises:
            UsageError: there is something else.
        """
        report_file = self._out / FINETUNING_FILE
        try:
            if not (report_file.exists() and (self._out / REPLICA_FILE).exists()):
                check_vacant(self._out)
                return None
            report: dict[str, Any] = json.loads(report_file.read_bytes())
            check_same(report["begun_with"], self._begun_with, self._out)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{report_file}: cannot be read ({error}); choose another folder", setting="out"
            ) from error
        return report

    def _write(self, parameters: torch.Tensor, epochs: list[Epoch], best: Epoch, threads: int) -> None:
        """Put the result into a folder, which becomes ``out`` when it is complete."""
        state = self._base.state
        layout = layout_of(build_outline(self.manifest).parameters())
        result = ReplicaState(state.round, state.swarm_tokens, layout, parameters, {})
        report = {
            "version": VERSION,
            "base": {
                "swarm_id": self._base.manifest.swarm_id,
                "round": state.round,
                "swarm_tokens": state.swarm_tokens,
                "state_digest": state.digest,
            },
            "objective": self.manifest.objective.model_dump(mode="json"),
            "settings": asdict(self._settings),
            "threads": threads,
            "columns": dict(self._task.train.columns),
            "examples": {"train": _counts(self.train), "valid": _counts(self.valid)},
            "epochs": [_plain(epoch) for epoch in epochs],
            "best_epoch": best.number,
            "begun_with": self._begun_with,
        }
        with new_model_folder(self._out) as folder:
            write_shared(folder, self.manifest, self._base.tokenizer.to_bytes(), self._base.origin)
            with writing_model(self._out):
                (folder / FINETUNING_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
            save_state(result, folder / REPLICA_FILE)
        self.report = report


@contextmanager
def keep_threads(threads: int) -> Iterator[None]:
    """PyTorch computes with so many threads within the ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _counts(examples: Examples) -> dict[str, int]:
    return {"examples": len(examples), "truncated": examples.truncated, "left_out": examples.empty}


def _plain(epoch: Epoch) -> dict[str, Any]:
    """As JSON can hold it: without numbers that are none."""
    scores = {name: None if math.isnan(value) else value for name, value in epoch.scores.items()}
    return asdict(epoch) | {"scores": scores}
