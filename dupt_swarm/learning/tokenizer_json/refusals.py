"""Why a tokenizer.json cannot be used, or why text does not survive it: in its users' words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dupt_swarm.learning.tokenizer_json.spelling import Spelling, parts_of, spelling_of

PREPENDED_MAX = 16  # characters
NORMALIZERS_MAX = 12
WORD_MAX = 1000  # characters; the time that WordPiece takes grows with their square


def find_problem(
    content: dict[str, Any], added: Sequence[Mapping[str, Any]], vocabulary: Mapping[str, int]
) -> str:
    """The first problem, or an empty string.

    Args:
        content: tokenizer.json as the library writes it.
        added: `added_tokens` as the file has it: the library numbers those anew that leave a gap.
        vocabulary: the id of each token, added ones included.
    """
    model = content["model"]
    # Unigram finds special tokens in text that spells them.
    if model["type"] not in ("BPE", "WordPiece"):
        return f"its model is {model['type']}, and only BPE and WordPiece can be used"
    if model.get("dropout"):
        return f"its model leaves out merges at random (dropout = {model['dropout']}); set that to null"
    if model["type"] == "BPE" and model.get("continuing_subword_prefix"):
        return f"its model has a prefix within words ({model['continuing_subword_prefix']!r})"
    if model.get("max_input_chars_per_word", 0) > WORD_MAX:
        return f"its words have {model['max_input_chars_per_word']} characters, and {WORD_MAX} are the most"
    if model.get("unk_token") and model["unk_token"] not in vocabulary:
        return f"its unk_token {model['unk_token']!r} is not in the vocabulary"
    return _misread(content) or _find_growth(content["normalizer"]) or _misnumbered(added, vocabulary)


def _misread(content: dict[str, Any]) -> str:
    """Whether its decoder is one for what its model makes of text."""
    kinds = " and ".join(part["type"] for part in parts_of(content["decoder"])) or "missing"
    spelling, model = spelling_of(content["decoder"]), content["model"]
    if model["type"] == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        if spelling is None or spelling.goes_on != prefix:
            return (
                f"its decoder is {kinds}, and not one for WordPiece whose prefix within words is {prefix!r}"
            )
    elif spelling is None or spelling.goes_on:
        return f"its decoder is {kinds}, and not one for bytes, for SentencePiece's pieces, or for words"
    return ""


def _misnumbered(added: Sequence[Mapping[str, Any]], vocabulary: Mapping[str, int]) -> str:
    for token in added:
        if (found := vocabulary.get(token["content"])) != token["id"]:
            return (
                f"its token {token['content']!r} has the id {token['id']}, but {found} would be the next: "
                "fill the gap with tokens that are not used"
            )
    ids = set(vocabulary.values())
    gap = next((index for index in range(len(vocabulary)) if index not in ids), None)
    if gap is None:
        return ""
    return f"its ids are not 0, 1, 2, …: {gap} is missing; fill the gap with tokens that are not used"


def _find_growth(normalizer: dict[str, Any] | None) -> str:
    """A few parts that make text longer could make gigabytes of a line."""
    parts = list(parts_of(normalizer))
    if len(parts) > NORMALIZERS_MAX:
        return f"its normalizer has {len(parts)} parts, and {NORMALIZERS_MAX} are the most"
    growing = next(filter(_grows, parts), None)
    return f"its normalizer ({growing['type']}) makes text longer" if growing else ""


def _grows(normalizer: Mapping[str, Any]) -> bool:
    if normalizer["type"] == "Prepend":
        return len(normalizer["prepend"]) > PREPENDED_MAX
    if normalizer["type"] == "Replace":
        return len(normalizer["content"]) > len(normalizer["pattern"].get("String", " "))
    return False


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
