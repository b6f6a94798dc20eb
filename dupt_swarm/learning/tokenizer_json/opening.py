"""From the bytes of a tokenizer.json, which a stranger may have written, to a tokenizer that is understood.

It is opened, tried out, and used; the library's failures and panics become errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tokenizers

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.tokenizer_json.refusals import find_problem, is_first_space, losses
from dupt_swarm.learning.tokenizer_json.spelling import Spelling, spelling_of


@dataclass(frozen=True)
class Opened:
    """A tokenizer that can be used.

    Attributes:
        backend: for text that begins a document.
        going_on: for text that goes on in one; often the same.
        marks_words: see `Spelling`.
        begins_words: whether tokens that begin a word have the space before it.
        tokens: by their ids.
        spelled: the bytes of text that each stands for; its own name for a special one.
        special: the ids that no text has, whatever it looks like.
        unknown: the one of them that a text has all the same, for what the vocabulary lacks; None: it lacks
            nothing.
        losses: why text does not survive; none: it does.
    """

    backend: tokenizers.Tokenizer
    going_on: tokenizers.Tokenizer
    marks_words: bool
    begins_words: bool
    tokens: list[str]
    spelled: list[bytes]
    special: frozenset[int]
    unknown: int | None
    losses: tuple[str, ...]


def parse(data: bytes) -> tokenizers.Tokenizer:
    """What the library makes of it.

    Raises:
        Exception: of whatever kind: it is not a tokenizer.json.
    """
    with panics_are_errors():
        return tokenizers.Tokenizer.from_str(data.decode("utf-8"))


def open_tokenizer(backend: tokenizers.Tokenizer, data: bytes, end_of_text: int) -> Opened:
    """``backend``, of any kind that is supported, which ``data`` was parsed to.

    What ends a text becomes special if it is not.

    Raises:
        ValueError: it is of another kind, or has no such end; says of which.
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
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if not 0 <= end_of_text < len(tokens):
        raise ValueError(f"there is no token {end_of_text} to end a text: it has {len(tokens)}")
    special = frozenset(token["id"] for token in content["added_tokens"] if token["special"])
    added = vocabulary.keys() - backend.get_vocab(False).keys()
    continuing = going_on(backend, content, spelling)
    for each in (backend, continuing):
        # Not part of tokenizer.json, so it must be set each time: text never becomes a special token.
        each.encode_special_tokens = True
        if end_of_text not in special:
            each.add_special_tokens([tokens[end_of_text]])
    # A token that was added to the model's own is its own text; one that the model has too, as Gemma's runs
    # of spaces, is spelled like all of the model's.
    written = special | {vocabulary[token] for token in added}
    model = content["model"]
    unknown = None if model.get("byte_fallback") else vocabulary.get(model.get("unk_token") or "")
    if spelling.goes_on:  # it stands for a word
        written -= {unknown}
    written |= {end_of_text} - special
    special |= {end_of_text}
    return Opened(
        backend,
        continuing,
        spelling.marks_words,
        bool(spelling.goes_on),
        tokens,
        [token.encode() if index in written else spelling.read(token) for index, token in enumerate(tokens)],
        special,
        unknown,
        tuple(dict.fromkeys(losses(content, spelling, vocabulary))),
    )


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


def encode_pieces(
    opened: Opened, texts: Sequence[str], first: Sequence[bool] | None = None
) -> list[list[int]]:
    """The ids of each text, on all cores, without what the tokenizer's template puts around it.

    Args:
        opened: the tokenizer.
        texts: documents, or pieces of them.
        first: for each whether it begins its document; None: all do.

    Raises:
        UsageError: a text is not valid Unicode, or the tokenizer fails.
    """
    if first is None or opened.going_on is opened.backend:
        return _encode(opened.backend, texts)
    both = list(zip(texts, first, strict=True))
    beginning = iter(_encode(opened.backend, [text for text, begins in both if begins]))
    continuing = iter(_encode(opened.going_on, [text for text, begins in both if not begins]))
    return [next(beginning if begins else continuing) for begins in first]


def _encode(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
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


# Cut in two, since corpora come in pieces.
PROBES = (
    ("The bear's  2 cubs,", "\n\tall 12345 of them…"),
    (" A naïve e\u0301 ﬁ", " 狐狸 🦊 ية <s> </s>\r\n"),
    ("\n", "  "),
)


def try_out(opened: Opened, decode: Callable[[Sequence[int]], str], *, keeps_text: bool) -> None:
    """Encode a few texts with ``opened``, and see that ``decode`` gives them back if it ``keeps_text``.

    Raises:
        ValueError: it does not do what it says.
        UsageError: it cannot encode a text.
    """
    before, _ = find_template(opened.backend)
    if len(before) > 1 or not all(0 <= index < len(opened.tokens) for index in before):
        raise ValueError("its post-processor puts more before a text than one token of its own")
    # What the vocabulary lacks becomes a special token too, and its own name may be among that.
    special = sorted(opened.special - {opened.unknown})
    names = [opened.tokens[index] for index in special]
    # At the beginning of a document, within it, and behind a letter.
    begun, within, behind = (
        encode_pieces(opened, texts, [first] * len(texts))
        for texts, first in ((names, True), (names, False), ([f"a{name}" for name in names], True))
    )
    for index, *encoded in zip(special, begun, within, behind, strict=True):
        if any(index in ids for ids in encoded):
            raise ValueError(
                f"text that spells its token {opened.tokens[index]!r} becomes that special token"
            )
    for probe in PROBES:
        first, second = encode_pieces(opened, probe, [True, False])
        found = decode(first + second)
        if keeps_text and found != "".join(probe):
            raise ValueError(f"its parts do not go together: {''.join(probe)!r} comes back as {found!r}")
