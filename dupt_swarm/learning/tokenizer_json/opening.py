"""From the bytes of a tokenizer.json, which a stranger may have written, to a tokenizer of the library's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import tokenizers

from dupt_swarm.learning.tokenizer_json.going_on import going_on
from dupt_swarm.learning.tokenizer_json.losses import losses
from dupt_swarm.learning.tokenizer_json.refusals import find_problem
from dupt_swarm.learning.tokenizer_json.spelling import spelling_of


@dataclass(frozen=True)
class Opened:
    """A tokenizer that can be used.

    Attributes:
        backend: for text that begins a document.
        going_on: for text that goes on in one; often the same.
        marks_words: see `Spelling`.
        tokens: by their ids.
        spelled: the bytes of text that each stands for; its own name for a special one.
        special: the ids that no text has, whatever it looks like.
        losses: why text does not survive; none: it does.
    """

    backend: tokenizers.Tokenizer
    going_on: tokenizers.Tokenizer
    marks_words: bool
    tokens: list[str]
    spelled: list[bytes]
    special: frozenset[int]
    losses: tuple[str, ...]


def parse(data: bytes) -> tokenizers.Tokenizer:
    """What the library makes of it.

    Raises:
        Exception: of whatever kind: it is not a tokenizer.json.
    """
    with panics_are_errors():
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))


def open_tokenizer(backend: tokenizers.Tokenizer, data: bytes) -> Opened:
    """``backend``, of any kind that is supported, which ``data`` was parsed to.

    Raises:
        ValueError: it is of another kind; says of which.
    """
    # Some files carry the last settings of whoever saved them.
    backend.no_truncation()
    backend.no_padding()
    content = json.loads(backend.to_str())  # as this version of the library writes it
    vocabulary = backend.get_vocab()
    if problem := find_problem(content, json.loads(data).get("added_tokens", []), vocabulary):
        raise ValueError(problem)
    spelling = spelling_of(content["decoder"])
    assert spelling, "find_problem has seen to it"
    continuing = going_on(backend, content, spelling)
    for each in (backend, continuing):
        # Not part of tokenizer.json, so it must be set each time: text never becomes a special token.
        each.encode_special_tokens = True
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = frozenset(token["id"] for token in content["added_tokens"] if token["special"])
    # A token that was added to the model's own is its own text; one that the model has too, as Gemma's runs
    # of spaces, is spelled like all of the model's.
    written = special | {vocabulary[token] for token in vocabulary.keys() - backend.get_vocab(False).keys()}
    return Opened(
        backend,
        continuing,
        spelling.marks_words,
        tokens,
        [token.encode() if index in written else spelling.read(token) for index, token in enumerate(tokens)],
        special,
        tuple(dict.fromkeys(losses(content, spelling, vocabulary))),
    )


def ending_with(opened: Opened, index: int) -> Opened:
    """``opened`` where this token is special too, as what ends a text must be."""
    if index in opened.special:
        return opened
    for backend in (opened.backend, opened.going_on):
        backend.add_special_tokens([opened.tokens[index]])
    spelled = list(opened.spelled)
    spelled[index] = opened.tokens[index].encode()
    return replace(opened, spelled=spelled, special=opened.special | {index})


@contextmanager
def panics_are_errors() -> Iterator[None]:
    """A panic in the library's Rust is no `Exception`, and would pass by whoever handles those."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the library failed: {error}") from error
