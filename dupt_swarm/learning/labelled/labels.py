"""Which labels there are, learnt from the training examples."""

from __future__ import annotations

import math

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.answers import name_of, number_in
from dupt_swarm.learning.labelled.files import LABEL, LabelledFiles
from dupt_swarm.tasks import Task

LABELS_MAX = 1000


def learn_labels(files: LabelledFiles, task: Task) -> list[str]:
    """All labels of the training examples, sorted; none where the task has no labels, or these are scores.

    Labels are taken for scores where the task has those too, and all are numbers, more than two of them.

    Raises:
        CorpusError: a row has none, there are no rows, only one label, or too many to be labels.
    """
    if "label" not in task.answers:
        return []
    labels: set[str] = set()
    rows = 0
    for where, cells in files.rows([LABEL]):
        try:
            labels.add(name_of(cells[LABEL]))
        except ValueError as error:
            raise CorpusError(f"{where}: {error}; fill it in, or remove the row") from error
        rows += 1
    if not rows:
        raise CorpusError(f"{files.path}: there are no rows; give some examples")
    numbers = [number_in(label) for label in labels]
    if "score" in task.answers and len(labels) > 2 and all(map(math.isfinite, numbers)):
        return []
    _check(labels, rows, files)
    return sorted(labels)


def _check(labels: set[str], rows: int, files: LabelledFiles) -> None:
    if len(labels) < 2:
        raise CorpusError(
            f"{files.path}: each of the {rows} rows has the label {labels.pop()!r}; there is nothing to tell "
            "apart: give examples of at least two labels"
        )
    if len(labels) > LABELS_MAX:
        raise CorpusError(
            f"{files.path}: there are {len(labels)} different labels in {rows} rows, and at most "
            f"{LABELS_MAX} are allowed; say which column has the labels",
            setting="columns",
        )
