"""Text to ids by the library, whose failures become errors for users."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.tokenizer_json.opening import Opened, panics_are_errors


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
    going_on = iter(_encode(opened.going_on, [text for text, begins in both if not begins]))
    return [next(beginning if begins else going_on) for begins in first]


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


def find_template(backend: tokenizers.Tokenizer) -> list[int]:
    """What the tokenizer's own template puts before a text."""
    with panics_are_errors():
        text, whole = backend.encode("a", add_special_tokens=False).ids, backend.encode("a").ids
    starts = range(len(whole) - len(text) + 1)
    start = next((start for start in starts if whole[start : start + len(text)] == text), 0)
    return list(whole[:start])
