"""Rows of tables to labels and to encoded examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
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
from dupt_swarm.manifest import Objective
from dupt_swarm.manifest.model import ModelKind
from dupt_swarm.tasks import TASKS, Task
from dupt_swarm.tasks.task import SpecialTokens, room

ROWS_AT_ONCE = 1 << 12  # tokenised together, on all cores

Item = TypeVar("Item")


def load_examples(
    files: LabelledFiles,
    objective: Objective,
    tokenizer: Tokenizer,
    context_length: int,
    *,
    labelled: bool = True,
    keep_empty: bool = False,
    model: ModelKind = "decoder",
) -> Examples:
    """Read, check and encode labelled examples, or rows to be answered.

    Texts that are too long are cut, rows with an empty text left out; both are counted.

    Args:
        files: which.
        objective: the model's.
        tokenizer: the model's.
        context_length: the model's.
        labelled: labels are read, and must be there.
        keep_empty: each row becomes an example.
        model: what is around the texts: tokens of a decoder's own, or those that an encoder's tokenizer has.

    Raises:
        CorpusError: file, row and remedy: what cannot be read, a column or a label that is missing or wrong.
        UsageError: the context has no room for a sequence, or a column is renamed that the task lacks.
    """
    special = SPECIAL_TOKENS[model](tokenizer)
    loader = _Loader(objective, tokenizer, special, context_length, labelled=labelled, keep_empty=keep_empty)
    return loader.load(files)


def of_encoder(tokenizer: Tokenizer) -> SpecialTokens:
    """[CLS] text [SEP], [CLS] first [SEP] second [SEP].

    Raises:
        ManifestError: the tokenizer has none of them.
    """
    tokens = tokenizer.encoder_tokens
    return SpecialTokens(tokens.first, tokens.last, tokens.last)


SPECIAL_TOKENS: dict[ModelKind, Callable[[Tokenizer], SpecialTokens]] = {
    "decoder": lambda tokenizer: SpecialTokens.after(tokenizer.vocabulary_size),
    "encoder": of_encoder,
}


@dataclass(frozen=True)
class _Question:
    """The texts of a row, and its label; the texts of all are tokenised together."""

    texts: list[str]
    label: float

    @property
    def empty(self) -> bool:
        return not all(text.strip() for text in self.texts)


class _Loader:
    """Encodes rows, and counts what had to be cut or left out."""

    def __init__(
        self,
        objective: Objective,
        tokenizer: Tokenizer,
        special: SpecialTokens,
        context_length: int,
        *,
        labelled: bool,
        keep_empty: bool,
    ) -> None:
        self._task: Task = TASKS[objective.kind]
        self._answer: Answer = build_answer(objective)
        self._tokenizer = tokenizer
        self._special = special
        self._room = room(context_length, self._task.texts_at_once)
        self._context_length = context_length
        self._labelled, self._keep_empty = labelled, keep_empty
        self._truncated = self._empty = 0

    def load(self, files: LabelledFiles) -> Examples:
        """All examples in ``files``."""
        files.check_names([*self._task.columns, LABEL])
        names = [*self._task.columns, *([LABEL] if self._labelled else [])]
        sequences: list[tuple[Tokens, ...]] = []
        labels: list[float] = []
        rows = 0
        for batch in chunks(files.rows(names), ROWS_AT_ONCE):
            questions = [self._read(row) for row in batch]
            rows += len(questions)
            self._empty += sum(question.empty for question in questions)
            kept = [question for question in questions if self._keep_empty or not question.empty]
            sequences += self._encode(kept)
            labels += [question.label for question in kept]
        if not sequences:
            reason = f"all {rows} rows have an empty text" if rows else "there are no rows"
            raise CorpusError(f"{files.path}: {reason}; give some examples")
        return Examples(
            sequences,
            torch.tensor(labels, dtype=self._answer.dtype),
            self._context_length,
            truncated=self._truncated,
            empty=self._empty,
            left_out=rows - len(sequences),
        )

    def _read(self, row: Row) -> _Question:
        try:
            texts = [well_formed(text) for text in self._task.texts(row.cells)]
        except ValueError as error:
            raise CorpusError(f"{row.where}: {error}; fix or remove that row", setting="columns") from error
        if not self._labelled:
            return _Question(texts, 0)
        try:
            return _Question(texts, self._answer.read(row.cells[LABEL], self._count_sequences(texts)))
        except ValueError as error:
            raise CorpusError(f"{row.where}: {error}; fix or remove that row") from error

    def _count_sequences(self, texts: list[str]) -> int:
        """How many the example will have, which its texts' tokens do not change."""
        return len(self._task.sequences([[] for _ in texts], self._special))

    def _encode(self, questions: list[_Question]) -> Iterator[tuple[Tokens, ...]]:
        encoded = iter(
            self._tokenizer.encode_batch([text for question in questions for text in question.texts])
        )
        for question in questions:
            texts = list(islice(encoded, len(question.texts)))
            self._truncated += any(len(text) > self._room for text in texts)
            cut = [text[: self._room] for text in texts]
            yield tuple(
                np.array(sequence, dtype=np.int32) for sequence in self._task.sequences(cut, self._special)
            )


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
