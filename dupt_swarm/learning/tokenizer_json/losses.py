"""Why text does not survive a tokenizer unchanged: reasons in words that its users understand."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from dupt_swarm.learning.tokenizer_json.spelling import Spelling, parts_of

# They cut text, and drop none of it.
CUTTING = {"ByteLevel", "Metaspace", "Digits", "Split", "Punctuation", "UnicodeScripts", "FixedLength"}


def losses(content: dict[str, Any], spelling: Spelling, vocabulary: Collection[str]) -> Iterator[str]:
    """Each reason in ``content``, a tokenizer.json, whose tokens are ``vocabulary``; none: text survives.

    The sign for the space is not counted: where it occurs in a text itself, it becomes a space.
    """
    for part in parts_of(content["normalizer"]):
        if not _keeps_text(part, spelling):
            yield f"its normalizer ({part['type']}) rewrites it"
    for part in parts_of(content["pre_tokenizer"]):
        if part["type"] not in CUTTING or part.get("behavior") == "Removed":
            yield f"its pre-tokenizer ({part['type']}) drops white space"
    if not _has_all_characters(content["model"], spelling, vocabulary):
        yield "characters that its vocabulary lacks are lost"
    yield from _at_added_tokens(content)


def is_first_space(normalizer: dict[str, Any], spelling: Spelling) -> bool:
    """Whether it puts a space before a text, as SentencePiece's models expect."""
    return normalizer["type"] == "Prepend" and normalizer["prepend"] in (spelling.space, " ")


def _keeps_text(normalizer: dict[str, Any], spelling: Spelling) -> bool:
    if normalizer["type"] == "Replace":
        return (normalizer["pattern"], normalizer["content"]) == ({"String": " "}, spelling.space)
    return is_first_space(normalizer, spelling)


def _has_all_characters(model: dict[str, Any], spelling: Spelling, vocabulary: Collection[str]) -> bool:
    if spelling.space and not model.get("byte_fallback"):
        return False
    return bool(spelling.byte_tokens) and all(token in vocabulary for token in spelling.byte_tokens)


def _at_added_tokens(content: dict[str, Any]) -> Iterator[str]:
    """Tokens that are looked for in the text before all else; it goes on after each as if it began there."""
    parts = [*parts_of(content["normalizer"]), *parts_of(content["pre_tokenizer"])]
    prepends = any(
        part["type"] == "Prepend"
        or (part["type"] == "ByteLevel" and part["add_prefix_space"])
        or (part["type"] == "Metaspace" and part["prepend_scheme"] == "always")
        for part in parts
    )
    for token in content["added_tokens"]:
        if token["special"]:
            continue
        if token["lstrip"] or token["rstrip"]:
            yield f"white space beside {token['content']!r} is lost"
        if prepends:
            yield f"a space is put after {token['content']!r}"
