"""An encoder says what is likeliest where a text has a gap."""

from __future__ import annotations

from typing import NamedTuple

import torch

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.tokenizer import MASK, Tokenizer
from dupt_swarm.learning.transformer.bert import Bert


class Guess(NamedTuple):
    """What may be in a gap: one token's text, without the space before it, and its probability."""

    text: str
    probability: float


@torch.inference_mode()
def fill(model: Bert, tokenizer: Tokenizer, text: str, most: int = 5) -> list[list[Guess]]:
    """For each gap of ``text`` the likeliest tokens, the likeliest first; the others are seen as gaps, too.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: a gap is written as ``[MASK]``, or as the tokenizer calls it.
        most: how many tokens for each.

    Raises:
        UsageError: there is no gap, or the text is longer than the context.
        ManifestError: the tokenizer has no token for a gap.
    """
    special = tokenizer.encoder_tokens
    pieces = text.replace(tokenizer.name_of(special.mask), MASK).split(MASK)
    if len(pieces) < 2:
        raise UsageError(
            f"the text has no {MASK}; write one where a word is to be predicted: The capital is {MASK}",
            setting="text",
        )
    # A word's tokens have the space before it, so it belongs to the gap.
    pieces[:-1] = [piece.rstrip(" ") for piece in pieces[:-1]]
    first, *others = tokenizer.encode_batch(pieces, [number == 0 for number in range(len(pieces))])
    ids = [special.first, *first]
    places = []
    for piece in others:
        places.append(len(ids))
        ids += [special.mask, *piece]
    ids.append(special.last)
    if len(ids) > model.config.context_length:
        raise UsageError(
            f"the text has {len(ids)} tokens, and the model sees {model.config.context_length}; shorten it",
            setting="text",
        )
    h = model.hidden(torch.tensor([ids], device=model.wte.weight.device))
    logits = model.masked_logits(h[0, places])[:, : tokenizer.vocabulary_size].float()
    logits[:, [*tokenizer.special_ids]] = -torch.inf
    found = logits.softmax(1).topk(min(most, logits.size(1)))
    return [
        [
            Guess(tokenizer.bytes_of(index).decode(errors="replace").strip(" "), probability)
            for index, probability in zip(indices, probabilities, strict=True)
        ]
        for indices, probabilities in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]
