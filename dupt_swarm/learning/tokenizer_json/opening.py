"""What the library tokenizers makes of a tokenizer.json, which a stranger may have written.

Its failures and panics become errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tokenizers

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.tokenizer_json.refusals import is_first_space
from dupt_swarm.learning.tokenizer_json.spelling import Spelling


def parse(data: bytes) -> tokenizers.Tokenizer:
    """What the library makes of it.

    Raises:
        Exception: of whatever kind: it is not a tokenizer.json.
    """
    with panics_are_errors():
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """A panic in the library's Rust is no `Exception`, and would pass by whoever handles those."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the library failed: {error}") from error


Table = dict[str, Any]


def going_on(backend: tokenizers.Tokenizer, content: Table, spelling: Spelling) -> tokenizers.Tokenizer:
    """``backend`` without the space that some put before a text, for text that begins no document.

    Itself if it puts none. ``content`` is its tokenizer.json.
    """
    changes = {
        "normalizer": _without_prefix(content["normalizer"], spelling),
        "pre_tokenizer": _without_prefix(content["pre_tokenizer"], spelling),
    }
    if all(content[key] == value for key, value in changes.items()):
        return backend
    return tokenizers.Tokenizer.from_str(json.dumps(content | changes))


def _without_prefix(table: Table | None, spelling: Spelling) -> Table | None:
    if table is None or is_first_space(table, spelling):
        return None
    changed = dict(table)
    if table["type"] == "Metaspace":
        changed["prepend_scheme"] = "never"
    if table["type"] == "ByteLevel":
        changed["add_prefix_space"] = False
    for key in ("normalizers", "pretokenizers"):
        if key in table:
            parts = [_without_prefix(part, spelling) for part in table[key]]
            changed[key] = [part for part in parts if part is not None]
    return changed


def encode(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text, on all cores, without what the tokenizer's template puts around it.

    Raises:
        UsageError: a text is not valid Unicode, or the tokenizer fails.
    """
    try:
        with panics_are_errors():
            encoded = backend.encode_batch_fast(list(texts), add_special_tokens=False)
    except TypeError as error:
        raise UsageError(
            "the text is not valid Unicode: it holds half of a surrogate pair; replace that character"
        ) from error
    except Exception as error:  # a bare one, or a panic as of a regular expression that gives up
        raise UsageError(
            f"the tokenizer cannot encode the text: {error}; leave it out, or use another tokenizer"
        ) from error
    return [encoding.ids for encoding in encoded]


def find_template(backend: tokenizers.Tokenizer) -> tuple[list[int], list[int]]:
    """What the tokenizer's own template puts before a text, and after it."""
    with panics_are_errors():
        text, whole = backend.encode("a", add_special_tokens=False).ids, backend.encode("a").ids
    starts = range(len(whole) - len(text) + 1)
    start = next((start for start in starts if whole[start : start + len(text)] == text), 0)
    return list(whole[:start]), list(whole[start + len(text) :])
