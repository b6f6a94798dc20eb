"""The input transformations of figure 1, as literal tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dupt_swarm.errors import UsageError
from dupt_swarm.tasks import TASKS
from dupt_swarm.tasks.task import SpecialTokens, room

SPECIAL = SpecialTokens.after(300)
S, D, E = 300, 301, 302


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("classification", [[1, 2]], [[S, 1, 2, E]]),
        ("entailment", [[1, 2], [3]], [[S, 1, 2, D, 3, E]]),
        ("similarity", [[1, 2], [3]], [[S, 1, 2, D, 3, E], [S, 3, D, 1, 2, E]]),
        (
            "multiple-choice",
            [[1, 2], [3], [4, 5], []],
            [[S, 1, 2, D, 3, E], [S, 1, 2, D, 4, 5, E], [S, 1, 2, D, E]],
        ),
    ],
)
def test_transformations(kind: str, texts: list[list[int]], expected: list[list[int]]) -> None:
    """Each task arranges its texts as in figure 1; the special tokens follow the tokenizer's."""
    assert TASKS[kind].sequences(texts, SPECIAL) == expected


@pytest.mark.parametrize(
    ("kind", "row", "texts"),
    [
        ("classification", {"text": "a"}, ["a"]),
        ("classification", {"text": None}, [""]),
        ("entailment", {"premise": "a", "hypothesis": "b"}, ["a", "b"]),
        ("similarity", {"first": "a", "second": "b"}, ["a", "b"]),
        ("multiple-choice", {"context": "a", "choices": ["b", "c", "d"]}, ["a", "b", "c", "d"]),
        ("multiple-choice", {"context": "a", "choices": '["b", "c"]'}, ["a", "b", "c"]),
    ],
)
def test_texts_of_a_row(kind: str, row: Mapping[str, object], texts: list[str]) -> None:
    """The columns of each task; a list of choices may be spelt in JSON, as in CSV."""
    assert TASKS[kind].texts(row) == texts


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("classification", {"text": 5}, "`text` is int, not text"),
        ("multiple-choice", {"context": "a", "choices": "b"}, "not a JSON list"),
        ("multiple-choice", {"context": "a", "choices": ["b"]}, "holds 1 texts, but at least 2"),
        ("multiple-choice", {"context": "a", "choices": ["b", 5]}, "not a list of texts"),
        ("multiple-choice", {"context": "a", "choices": {"b": 1}}, "not a list of texts"),
    ],
)
def test_wrong_cells(kind: str, row: Mapping[str, Any], message: str) -> None:
    """A cell of another type is refused with what it should be."""
    with pytest.raises(ValueError, match=message):
        TASKS[kind].texts(row)


def test_room_is_shared_equally() -> None:
    """A text may fill the context but for two tokens; each of two has half of what three leave."""
    assert room(512, 1) == 510
    assert room(512, 2) == 254
    assert room(5, 2) == 1
    with pytest.raises(UsageError, match="4 tokens has no room for 2 texts and 3 special"):
        room(4, 2)
