"""An encoder-decoder writes a text for each of many, those of similar lengths at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dupt_swarm.learning.generation.beam import BeamSearch, write
from dupt_swarm.learning.interruptible import Look
from dupt_swarm.learning.labelled.pairs import ended
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class Translation:
    """What was written for a text.

    Attributes:
        text: empty for an empty source.
        score: see `BeamSearch.score`; None for an empty source.
        cut: whether the source was longer than the context, and its end was not read.
    """

    text: str
    score: float | None = None
    cut: bool = False


def translate(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    search: BeamSearch,
    *,
    at_once: int = 16,
    look: Look = lambda *_: None,
) -> list[Translation]:
    """A text for each of ``sources``, in their order.

    Args:
        model: of fp32 weights.
        tokenizer: the model's.
        sources: texts of any kind that the model has learnt.
        search: how to search.
        at_once: how many sequences to write at once, where each beam is one.
        look: called before each batch with how many sources of how many are done; may raise.

    Raises:
        UsageError: a source is not valid Unicode.
    """
    context, end = model.config.context_length, tokenizer.end_of_text
    encoded = tokenizer.encode_batch(sources)
    found = [Translation("")] * len(sources)
    by_length = sorted((n for n, text in enumerate(sources) if text.strip()), key=lambda n: len(encoded[n]))
    size = max(1, at_once // search.beams)
    for start in range(0, len(by_length), size):
        look(start, len(by_length))
        batch = by_length[start : start + size]
        outputs = write(
            model,
            [ended(encoded[number], end, context) for number in batch],
            search,
            end=end,
            vocabulary_size=tokenizer.vocabulary_size,
        )
        for number, output in zip(batch, outputs, strict=True):
            cut = len(encoded[number]) >= context
            found[number] = Translation(tokenizer.decode(output.tokens), output.score, cut)
    return found
