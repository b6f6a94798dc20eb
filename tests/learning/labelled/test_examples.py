"""Rows become encoded examples, counted, split by hash, and dealt out."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dupt_swarm.errors import CheckpointError, CorpusError, UsageError
from dupt_swarm.learning.labelled.encoded import EncodedBatches
from dupt_swarm.learning.labelled.examples import Examples
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import learn_labels, load_examples
from dupt_swarm.learning.objectives.start import task_manifest
from dupt_swarm.manifest import Objective
from dupt_swarm.tasks import TASKS
from tests.support.saved_models import small_tokenizer
from tests.support.tasks import two_languages, write_lines
from tests.support.tiny import tiny_manifest

TOKENIZER = small_tokenizer()
N = TOKENIZER.vocabulary_size
LANGUAGES = Objective(kind="classification", labels=["de", "en"])
CHOICE = Objective(kind="multiple-choice")
NUMBER = Objective(kind="similarity")


def lines(tmp_path: Path, *rows: dict[str, Any]) -> LabelledFiles:
    return LabelledFiles(write_lines(tmp_path / "a.jsonl", list(rows)))


def load(
    files: LabelledFiles, objective: Objective = LANGUAGES, context_length: int = 16, **how: bool
) -> Examples:
    manifest = task_manifest(tiny_manifest(model={"context_length": context_length}), objective)
    return load_examples(files, manifest, TOKENIZER, **how)


def some(tmp_path: Path, count: int, seed: int = 1) -> Examples:
    return load(lines(tmp_path, *two_languages(count, seed)))


def test_a_batch_of_examples(tmp_path: Path) -> None:
    """Examples with different numbers of choices share a batch, padded with sequences of length 0."""
    examples = load(
        lines(
            tmp_path,
            {"context": "a", "choices": ["b", "cd"], "label": 1},
            {"context": "e", "choices": ["f", "g", "h"], "label": "2"},
        ),
        CHOICE,
    )
    tokens, lengths, labels = examples.batch([1, 0])
    a, b, c, d, e, f, g, h = (TOKENIZER.encode(letter)[0] for letter in "abcdefgh")
    start, delimiter, extract = N, N + 1, N + 2
    assert tokens.tolist() == [
        [[start, e, delimiter, choice, extract, 0] for choice in (f, g, h)],
        [
            [start, a, delimiter, b, extract, 0],
            [start, a, delimiter, c, d, extract],
            [0, 0, 0, 0, 0, 0],
        ],
    ]
    assert lengths.tolist() == [[5, 5, 5], [5, 6, 0]]
    assert labels.tolist() == [2, 1]
    assert (tokens.dtype, lengths.dtype, labels.dtype) == (torch.int64,) * 3
    assert examples.sequences_max == 3 and examples.length_max == 6 and examples.tokens_per_example == 16


def test_half_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    """What JSON can spell and UTF-8 cannot becomes U+FFFD."""
    rows = [{"text": "\ud83e", "label": "en"}, {"text": "\ufffd", "label": "en"}]
    broken, whole = load(lines(tmp_path, *rows)).sequences
    assert broken[0].tolist() == whole[0].tolist()


def test_long_texts_are_cut_and_counted(tmp_path: Path) -> None:
    """A text keeps its first k − 2 tokens, each of two (k − 3) // 2, whatever the other's length."""
    long = "the bridge over the river " * 20
    ids = TOKENIZER.encode(long)
    rows = [{"text": long, "label": "en"}, {"text": "Bär", "label": "de"}]
    examples = load(lines(tmp_path, *rows))
    assert examples.truncated == 1
    assert examples.sequences[0][0].tolist() == [N, *ids[:14], N + 2]
    pair = load(lines(tmp_path, {"first": long, "second": "a", "label": 3.5}), NUMBER)
    assert pair.truncated == 1
    a = TOKENIZER.encode("a")
    assert [sequence.tolist() for sequence in pair.sequences[0]] == [
        [N, *ids[:6], N + 1, *a, N + 2],
        [N, *a, N + 1, *ids[:6], N + 2],
    ]
    assert pair.labels.tolist() == [3.5] and pair.labels.dtype == torch.float32


def test_empty_texts_are_left_out_and_counted(tmp_path: Path) -> None:
    """Rows with an empty text are no examples to learn from, but questions to be answered."""
    files = lines(
        tmp_path, {"text": " ", "label": "en"}, {"text": "Bär", "label": "de"}, {"text": None, "label": "de"}
    )
    examples = load(files)
    assert (len(examples), examples.empty) == (1, 2)
    questions = load(files, labelled=False, keep_empty=True)
    assert (len(questions), questions.empty) == (3, 2)
    assert questions.sequences[2][0].tolist() == [N, N + 2]
    with pytest.raises(CorpusError, match="all 1 rows have an empty text"):
        load(lines(tmp_path, {"text": "", "label": "en"}))


@pytest.mark.parametrize(
    ("objective", "row", "message"),
    [
        (
            LANGUAGES,
            {"text": "x", "label": "fr"},
            "a.jsonl:1: label 'fr' is unknown: there are 'de', 'en'; fix",
        ),
        (LANGUAGES, {"text": "x", "label": None}, "there is no label"),
        (LANGUAGES, {"text": "x", "label": ["de"]}, r"\['de'\] is no label"),
        (LANGUAGES, {"text": 5, "label": "de"}, "`text` is int, not text"),
        (LANGUAGES, {"label": "de"}, "there is no column `text`: it has `label`"),
        (NUMBER, {"first": "x", "second": "y", "label": "high"}, "label 'high' is not a number"),
        (NUMBER, {"first": "x", "second": "y", "label": float("nan")}, "label nan is not a number"),
        (
            NUMBER,
            {"first": "x", "second": "y", "label": -1e39},
            r"a.jsonl:1: label -1e\+39 is infinite in fp32",
        ),
        (CHOICE, {"context": "x", "choices": ["y", "z"], "label": 2}, "label 2 is not the index of one of 2"),
        (CHOICE, {"context": "x", "choices": ["y", "z"], "label": -1}, "0 to 1"),
        (CHOICE, {"context": "x", "choices": ["y", "z"], "label": 0.5}, "label 0.5 is not the index"),
        (CHOICE, {"context": "x", "choices": ["y"], "label": 0}, "at least 2 are needed"),
    ],
)
def test_bad_rows(tmp_path: Path, objective: Objective, row: dict[str, Any], message: str) -> None:
    """What is wrong with a row is said with its line and a remedy."""
    with pytest.raises(CorpusError, match=message):
        load(lines(tmp_path, row), objective)


def test_no_rows(tmp_path: Path) -> None:
    """A table without rows is refused."""
    with pytest.raises(CorpusError, match="there are no rows"):
        load(lines(tmp_path))


def test_no_room(tmp_path: Path) -> None:
    """A context without room for a single token of each text is refused."""
    with pytest.raises(UsageError, match="no room for 2 texts"):
        load(lines(tmp_path), NUMBER, 4)


def test_labels_are_learnt(tmp_path: Path) -> None:
    """They are those of the training examples, sorted; numbers on a scale are scores."""

    def learn(kind: str, *labels: object) -> list[str]:
        return learn_labels(lines(tmp_path, *({"label": label} for label in labels)), TASKS[kind])

    assert learn("classification", "b", "a", "b") == ["a", "b"]
    assert learn("classification", 2, 1, 3.0) == ["1", "2", "3"]
    assert learn("classification", "\ud83e", "a") == ["a", "\ufffd"]
    assert learn("similarity", 0, 1, 1) == ["0", "1"]
    assert learn("similarity", 0, 2.5, 5) == []
    assert learn("similarity", "same", "other") == ["other", "same"]
    assert learn("multiple-choice", 0, 0) == []
    with pytest.raises(
        CorpusError, match="each of the 2 rows has the label 'a'; there is nothing to tell apart"
    ):
        learn("classification", "a", "a")
    with pytest.raises(CorpusError, match=r"a\.jsonl:2: there is no label; fill it in"):
        learn("classification", "a", "")
    with pytest.raises(CorpusError, match="1001 different labels in 1001 rows"):
        learn("classification", *map(str, range(1001)))
    with pytest.raises(CorpusError, match="there are no rows"):
        learn("entailment")


def test_split_by_hash(tmp_path: Path) -> None:
    """About a tenth is held out, at least one and never all, equal rows together, by seed and row alone."""
    examples = some(tmp_path, 400)
    train, held_out = examples.split(seed=3)
    assert len(train) + len(held_out) == 400
    assert 5 < len(held_out) < 100

    def rows(part: Examples) -> set[bytes]:
        return {sequences[0].tobytes() for sequences in part.sequences}

    assert not rows(train) & rows(held_out)
    assert rows(examples.split(seed=4)[1]) != rows(held_out)
    again, _ = some(tmp_path, 400).split(seed=3)
    assert again.digest() == train.digest() != held_out.digest()
    for count in (2, 3, 5):
        distinct = [{"text": "x" * (index + 1), "label": "de"} for index in range(count)]
        parts = load(lines(tmp_path, *distinct)).split(seed=1)
        assert all(map(len, parts)) and sum(map(len, parts)) == count
    same = [{"text": "x", "label": "de"}] * 2
    with pytest.raises(CorpusError, match="no two different ones"):
        load(lines(tmp_path, *same)).split(seed=1)


def test_two_examples_are_one_each(tmp_path: Path) -> None:
    """Even where the hashes of all are among those to be held out, or none is."""
    two = some(tmp_path, 2)
    for seed in range(300):
        assert [len(part) for part in two.split(seed)] == [1, 1]


def test_where_a_sequence_ends_counts() -> None:
    """The same tokens, cut elsewhere, are another example."""
    one, other = (
        Examples([tuple(np.array(ids, dtype=np.int32) for ids in cut)], 16, 0, 0, torch.zeros(1))
        for cut in (([1, 2], [3]), ([1], [2, 3]))
    )
    assert one.digest() != other.digest()


def test_batches_go_on(tmp_path: Path) -> None:
    """Each example comes once per epoch; a state that went through JSON goes on, whatever the batch size."""
    examples = some(tmp_path, 10)
    examples.labels.copy_(torch.arange(10))  # to tell them apart
    batches = EncodedBatches(examples, 4, seed=1, peer="a")
    assert batches.tokens_per_example == 16
    dealt = torch.cat([labels for _, _, labels in islice(batches, 5)])
    assert sorted(dealt[:10].tolist()) == sorted(dealt[10:].tolist()) == list(range(10))
    other = EncodedBatches(examples, 3, seed=1, peer="a")
    next(other)
    resumed = EncodedBatches(examples, 17, seed=1, peer="a")
    resumed.load_state_dict(json.loads(json.dumps(other.state_dict())))
    assert torch.equal(next(resumed)[2], dealt[3:])
    with pytest.raises(CheckpointError):
        resumed.load_state_dict({})


def test_epochs_may_be_kept_apart(tmp_path: Path) -> None:
    """Then the last batch of an epoch is smaller, and none spans two."""
    examples = some(tmp_path, 10)
    batches = EncodedBatches(examples, 4, seed=1, peer="a", across_epochs=False)
    assert [len(labels) for _, _, labels in islice(batches, 6)] == [4, 4, 2, 4, 4, 2]
    assert [len(labels) for _, _, labels in examples.in_order(4)] == [4, 4, 2]
    with pytest.raises(CorpusError, match="no examples to train on"):
        EncodedBatches(Examples([], 16, 0, 0, torch.zeros(0)), 4, seed=1, peer="a")
