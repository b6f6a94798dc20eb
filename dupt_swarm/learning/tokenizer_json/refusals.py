"""Why a tokenizer.json cannot be used: in words that name what would have to be another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dupt_swarm.learning.tokenizer_json.spelling import parts_of, spelling_of

PREPENDED_MAX = 16  # characters
NORMALIZERS_MAX = 12


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
    # WordPiece loses spaces; Unigram finds special tokens in text that spells them.
    if model["type"] != "BPE":
        return f"its model is {model['type']}, and only BPE can be used"
    if model.get("dropout"):
        return f"its model leaves out merges at random (dropout = {model['dropout']}); set that to null"
    if model.get("continuing_subword_prefix"):
        return f"its model has a prefix within words ({model['continuing_subword_prefix']!r})"
    if model.get("unk_token") and model["unk_token"] not in vocabulary:
        return f"its unk_token {model['unk_token']!r} is not in the vocabulary"
    if spelling_of(content["decoder"]) is None:
        kinds = " and ".join(part["type"] for part in parts_of(content["decoder"])) or "missing"
        return f"its decoder is {kinds}, and not one for bytes, for SentencePiece's pieces, or for words"
    return _find_growth(content["normalizer"]) or _misnumbered(added, vocabulary)


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
