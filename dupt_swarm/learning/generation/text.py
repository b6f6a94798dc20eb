"""A decoder continues a text: whole characters as soon as they are there, up to a stop word."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.generation.generate import generate
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT


def continue_text(
    model: GPT, tokenizer: Tokenizer, prompt: str, sampling: Sampling, stop: Sequence[str] = ()
) -> Iterator[str]:
    """What the model writes after ``prompt``, in pieces; together they are the text.

    It ends with the document, before the first stop word, or after ``sampling.tokens`` tokens.

    Args:
        model: see `generate`.
        tokenizer: the model's.
        prompt: how a document begins; empty: the model begins one of its own.
        sampling: how to choose tokens.
        stop: words; from the first of them on, text is never yielded.

    Raises:
        UsageError: a stop word is empty, or the prompt is not valid Unicode.
    """
    if not all(stop):
        raise UsageError("a stop word is empty: nothing would be written; leave it out", setting="stop")
    encoded, end = tokenizer.encode(prompt), tokenizer.end_of_text
    tokens = generate(
        model,
        tokenizer.prefix + encoded or [end],
        sampling,
        end=end,
        vocabulary_size=tokenizer.vocabulary_size,
    )
    return until(characters(tokenizer, tokens, encoded), stop)


def characters(tokenizer: Tokenizer, tokens: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
    """The text of ``tokens``, as `Tokenizer.decode` gives it, in pieces of whole characters.

    ``before`` are the tokens that they follow in their document; their text is there already.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for spelled in tokenizer.spell(tokens, before):
        if text := decoder.decode(spelled):
            yield text
    if rest := decoder.decode(b"", final=True):
        yield rest


def until(pieces: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """``pieces`` up to the word of ``stop`` that is complete first, even if it is split among pieces.

    What may be the beginning of such a word is held back until it is known.
    """
    held = ""
    for piece in pieces:
        held += piece
        if found := [(start + len(word), start) for word in stop if (start := held.find(word)) >= 0]:
            _, start = min(found)
            if start:
                yield held[:start]
            return
        safe = len(held) - max((_overlap(held, word) for word in stop), default=0)
        if safe:
            yield held[:safe]
        held = held[safe:]
    if held:
        yield held


def _overlap(text: str, word: str) -> int:
    """How many of the last characters of ``text`` are the first ones of ``word``, at most all but one."""
    longest = min(len(text), len(word) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(word[:length])), 0)
