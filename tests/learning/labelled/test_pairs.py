"""Pairs of texts become sources, inputs and targets; those of a step have similar lengths."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.pairs import PairBatches, Pairs, load_pairs, read_rows
from tests.support.saved_models import small_tokenizer
from tests.support.tasks import write_lines

TOKENIZER = small_tokenizer()
END = TOKENIZER.end_of_text


def load(tmp_path: Path, *rows: dict[str, Any], context_length: int = 16) -> Pairs:
    return load_pairs(LabelledFiles(write_lines(tmp_path / "a.jsonl", list(rows))), TOKENIZER, context_length)


def of_lengths(lengths: list[int]) -> Pairs:
    """Pairs that are told apart by their first token."""
    sequences = [
        (np.full(length, number, np.int32), np.ones(1, np.int32)) for number, length in enumerate(lengths)
    ]
    return Pairs(list(sequences), 16, 0, 0, 0)


def test_a_batch_of_pairs(tmp_path: Path) -> None:
    """Both texts end with the end of a text, which also begins what the decoder reads; tokens count alike."""
    pairs = load(tmp_path, {"source": "abc", "target": "d"}, {"source": "e", "target": "fgh"})
    a, b, c, d, e, f, g, h = (TOKENIZER.encode(letter)[0] for letter in "abcdefgh")
    source, source_lengths, inputs, targets, lengths, weights = pairs.batch([0, 1])
    assert source.tolist() == [[a, b, c, END], [e, END, 0, 0]]
    assert inputs.tolist()[1] == [END, f, g, h] and inputs.tolist()[0][:2] == [END, d]
    assert targets.tolist() == [[d, END, 0, 0], [f, g, h, END]]
    assert (source_lengths.tolist(), lengths.tolist()) == ([4, 2], [2, 4])
    torch.testing.assert_close(weights, torch.tensor([2 / 3, 4 / 3]))
    assert pairs.length_max == 4 and pairs.tokens_per_example == 16


def test_long_texts_are_cut_and_empty_ones_left_out(tmp_path: Path) -> None:
    """What is too long keeps its beginning, without its end; both are counted."""
    rows = [
        {"source": "abcdefgh", "target": "a"},
        {"source": "a", "target": " "},
        {"source": "", "target": ""},
    ]
    pairs = load(tmp_path, *rows, {"source": "abc", "target": "d"}, context_length=4)
    assert (len(pairs), pairs.truncated, pairs.empty) == (2, 1, 2)
    assert pairs.sequences[0][0].tolist() == TOKENIZER.encode("abcd")
    assert pairs.sequences[1][0].tolist() == [*TOKENIZER.encode("abc"), END]
    with pytest.raises(CorpusError, match="all 2 rows have an empty text; give some pairs"):
        load(tmp_path, *rows[1:])
    with pytest.raises(CorpusError, match="there are no rows"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"source": "a", "target": None},
            r"a.jsonl:2: `target` is nothing, not text; fix or remove that row",
        ),
        ({"source": 7, "target": "b"}, "a.jsonl:2: `source` is int, not text"),
        ({"source": "a"}, "a.jsonl:2: there is no column `target`: it has `source`"),
    ],
)
def test_a_row_without_a_pair_is_named(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    """File, row and column, before anything is learnt from half a pair."""
    with pytest.raises(CorpusError, match=reason):
        load(tmp_path, {"source": "a", "target": "b"}, row)


def test_tables_of_every_kind(tmp_path: Path) -> None:
    """A packed table whose columns have other names; a tokenizer learns from both."""
    with gzip.open(tmp_path / "a.csv.gz", "wt") as stream:
        stream.write("de,en\nBär,bear\nüber,over\n")
    files = LabelledFiles(tmp_path / "a.csv.gz", {"source": "de", "target": "en"})
    assert len(load_pairs(files, TOKENIZER, 16)) == 2
    assert list(read_rows(files)) == [("Bär", "bear"), ("über", "over")]
    with pytest.raises(UsageError, match="no column `text`: there are `source`, `target`"):
        load_pairs(LabelledFiles(tmp_path / "a.csv.gz", {"text": "de"}), TOKENIZER, 16)


def test_steps_have_similar_lengths_in_an_order_of_the_peer() -> None:
    """Every pair once an epoch; a step's lengths are close; other peers, other epochs, other orders."""
    lengths = np.random.default_rng(1).integers(1, 16, 1002).tolist()
    pairs = of_lengths(lengths)

    def dealt(peer: str, epochs: int = 1) -> list[list[int]]:
        batches = PairBatches(pairs, 8, 8, seed=1, peer=peer)
        return [next(batches)[0][:, 0].tolist() for _ in range(1002 * epochs // 8)]

    two = [number for step in dealt("a", 4) for number in step]
    assert sorted(two[:1002]) == list(range(1002)) == sorted(two[1002:2004])
    assert two[:1002] != two[1002:2004]
    spread = [max(picked) - min(picked) for step in dealt("a", 4) if (picked := [lengths[n] for n in step])]
    assert np.mean(spread) < 1.5  # and a random step's is 12
    assert dealt("a") == dealt("a") != dealt("b")


@pytest.mark.parametrize("count", [3, 8, 61])
def test_the_order_goes_on_with_any_batch_size(count: int) -> None:
    """After a checkpoint the same pairs follow, even if they come in other batches."""
    pairs = of_lengths([1 + number % 7 for number in range(count)])
    ours, theirs = (PairBatches(pairs, size, 8, seed=1, peer="a") for size in (8, 2))
    for _ in range(5):
        next(ours)
    theirs.load_state_dict(json.loads(json.dumps(ours.state_dict())))
    expected = [n for _ in range(8) for n in next(ours)[0][:, 0].tolist()]
    assert [n for _ in range(32) for n in next(theirs)[0][:, 0].tolist()] == expected


def test_no_batch_takes_more_than_the_longest(tmp_path: Path) -> None:
    """The longest sources stand beside the longest targets, from whatever pairs they are."""
    rows = [{"source": "a" * 9, "target": "b"}, {"source": "a", "target": "b" * 7}]
    pairs = load_pairs(LabelledFiles(write_lines(tmp_path / "a.jsonl", rows)), TOKENIZER, 16)
    source, _, inputs, *_ = pairs.longest(1)
    most = [max(len(pair[side]) for pair in pairs.sequences) for side in (0, 1)]
    assert [source.size(1), inputs.size(1)] == most
