"""Rows of tables to labels and to encoded examples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import compress, islice
from typing import TypeVar

import numpy as np
import torch

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.answers import Answer, build_answer, name_of, number_in
from dupt_swarm.learning.labelled.encoded import Tokens
from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.learning.labelled.files import LABEL, LabelledFiles
from dupt_swarm.learning.labelled.tables import Row
from dupt_swarm.learning.reading import well_formed
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.tasks import TASKS, Task
from dupt_swarm.tasks.task import SpecialTokens, room

ROWS_AT_ONCE = 1 << 12  # tokenised together, on all cores

Item = TypeVar("Item")


def load_examples(
    files: LabelledFiles,
    manifest: Manifest,
    tokenizer: Tokenizer,
    *,
    labelled: bool = True,
    keep_empty: bool = False,
) -> Examples:
    """Read, check and encode labelled examples, or rows to be answered.

    Texts that are too long are cut, rows with an empty text left out; both are counted.

    Args:
        files: which.
        manifest: the model's.
        tokenizer: the model's.
        labelled: labels are read, and must be there.
        keep_empty: each row becomes an example.

    Raises:
        CorpusError: file, row and remedy: what cannot be read, a column or a label that is missing or wrong.
        UsageError: the context has no room for a sequence, or a column is renamed that the task lacks.
    """
    task, answer = TASKS[manifest.objective.kind], build_answer(manifest.objective)
    special = _special_tokens(tokenizer, manifest.model.kind)
    most = room(manifest.model.context_length, task.texts_at_once)
    files.check_names([*task.columns, LABEL])
    sequences: list[tuple[Tokens, ...]] = []
    labels: list[float] = []
    rows = empty = truncated = 0
    for batch in chunks(files.rows([*task.columns, *([LABEL] if labelled else [])]), ROWS_AT_ONCE):
        questions = [_read(row, task, special, answer if labelled else None) for row in batch]
        written = [all(map(str.strip, texts)) for texts, _ in questions]
        rows, empty = rows + len(batch), empty + written.count(False)
        kept = questions if keep_empty else list(compress(questions, written))
        encoded = iter(tokenizer.encode_batch([text for texts, _ in kept for text in texts]))
        for texts, label in kept:
            tokens = list(islice(encoded, len(texts)))
            truncated += any(len(text) > most for text in tokens)
            found = task.sequences([text[:most] for text in tokens], special)
            sequences.append(tuple(np.array(sequence, dtype=np.int32) for sequence in found))
            labels.append(label)
    if not sequences:
        reason = f"all {rows} rows have an empty text" if rows else "there are no rows"
        raise CorpusError(f"{files.path}: {reason}; give some examples")
    answers = torch.tensor(labels, dtype=answer.dtype)
    return Examples(sequences, manifest.model.context_length, truncated, empty, answers)


def _special_tokens(tokenizer: Tokenizer, model: ModelKind) -> SpecialTokens:
    """A decoder's own; or [CLS] text [SEP], [CLS] first [SEP] second [SEP].

    Raises:
        ManifestError: the model is an encoder, and the tokenizer has none of them.
    """
    if model == "decoder":
        return SpecialTokens.after(tokenizer.vocabulary_size)
    tokens = tokenizer.encoder_tokens
    return SpecialTokens(tokens.first, tokens.last, tokens.last)


def _read(row: Row, task: Task, special: SpecialTokens, answer: Answer | None) -> tuple[list[str], float]:
    """The texts of a row, and its label; 0 where no ``answer`` is read.

    Raises:
        CorpusError: names file, row and remedy.
    """
    try:
        texts = [well_formed(text) for text in task.texts(row.cells)]
    except ValueError as error:
        raise CorpusError(f"{row.where}: {error}; fix or remove that row", setting="columns") from error
    if answer is None:
        return texts, 0
    choices = len(task.sequences([[] for _ in texts], special))  # whatever the texts' tokens are
    try:
        return texts, answer.read(row.cells[LABEL], choices)
    except ValueError as error:
        raise CorpusError(f"{row.where}: {error}; fix or remove that row") from error


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """``items`` in order, ``size`` at a time."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


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
