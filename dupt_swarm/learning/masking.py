"""Examples for an encoder: blocks of text with some tokens masked, and pairs of texts.

Devlin et al. 2018 (arXiv:1810.04805), section 3.1: of the tokens, 15 % are predicted; 80 % of those are
masked, 10 % are other tokens, 10 % stay. With pairs, a text is cut in two, and half of the time the second
part is that of the example before. Each example draws from the oracle's own seed and its own number, so that
masks are new in each epoch, and an interrupted training goes on alike.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import torch

from dupt_swarm.errors import CheckpointError
from dupt_swarm.learning.batches import Batch, BatchSource
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.manifest import Manifest

MASKED, REPLACED = 0.8, 0.1  # of what is predicted; the rest stays as it is
ANOTHER = 0.5  # of the second texts
Ids = np.ndarray[Any, np.dtype[np.int64]]
NOTHING = -1  # at a place that is not predicted


def text_tokens(manifest: Manifest) -> int:
    """Tokens of text in a sequence at most: there are [CLS], [SEP], and with pairs another [SEP]."""
    return manifest.model.context_length - (3 if manifest.objective.nsp else 2)


class Masked(NamedTuple):
    """A sequence in which some tokens are predicted.

    Attributes:
        tokens: int64 [T].
        places: int64 [M], where tokens are predicted, in order; filled up with 0.
        targets: int64 [M], what was there; filled up with `NOTHING`.
    """

    tokens: Ids
    places: Ids
    targets: Ids


class Masking:
    """How a swarm masks."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer) -> None:
        """By the manifest's objective.

        Raises:
            ManifestError: the tokenizer has no [MASK].
        """
        objective = manifest.objective
        self.special = tokenizer.encoder_tokens
        self.pairs = objective.nsp
        self.text_tokens = text_tokens(manifest)
        self.context_length = manifest.model.context_length
        self._share = objective.masked_share
        self._most = max(1, round(self._share * self.text_tokens))  # M
        self._is_special = np.zeros(tokenizer.vocabulary_size, dtype=bool)
        self._is_special[list(tokenizer.special_ids)] = True
        self._is_edge = self._is_special.copy()  # of documents; what a vocabulary lacks stands in texts
        if tokenizer.unknown is not None:
            self._is_edge[tokenizer.unknown] = False
        self._ordinary = np.flatnonzero(~self._is_special)
        self._starts_word = tokenizer.starts_word()
        self._whole_words = objective.whole_words

    def mask(self, tokens: Ids, random: np.random.Generator) -> Masked:
        """Have some of ``tokens`` predicted, one at least, but none that is special."""
        candidates = np.flatnonzero(~self._is_special[tokens])
        wanted = min(self._most, max(1, round(self._share * len(candidates))))
        places = np.sort(self._chosen(tokens, candidates, wanted, random))
        targets = tokens[places]
        fate = random.random(len(places))
        others = self._ordinary[random.integers(len(self._ordinary), size=len(places))]
        masked = tokens.copy()
        masked[places] = np.where(
            fate < MASKED, self.special.mask, np.where(fate < MASKED + REPLACED, others, targets)
        )
        rest = self._most - len(places)
        return Masked(masked, np.pad(places, (0, rest)), np.pad(targets, (0, rest), constant_values=NOTHING))

    def around(self, *texts: Ids) -> Ids:
        """[CLS] text [SEP], or [CLS] text [SEP] text [SEP]."""
        ended = [part for text in texts for part in (text, [self.special.last])]
        return np.concatenate([[self.special.first], *ended]).astype(np.int64)

    def piece_in(self, block: Ids) -> Ids:
        """The longest piece of one document in a block."""
        edges = np.flatnonzero(np.concatenate(([True], self._is_edge[block], [True])))
        longest = int(np.argmax(np.diff(edges)))
        return block[edges[longest] : edges[longest + 1] - 1]

    def cut(self, text: Ids, random: np.random.Generator) -> tuple[Ids, Ids]:
        """Two parts of a text, the second of which begins with a word."""
        place = self._word_in(text, 1, max(2, len(text)), random)
        return text[:place], text[place:]

    def part_of(self, text: Ids, length: int, random: np.random.Generator) -> Ids:
        """So many tokens of a text that has them, from a word on."""
        place = self._word_in(text, 0, len(text) - length + 1, random)
        return text[place : place + length]

    def _word_in(self, text: Ids, first: int, end: int, random: np.random.Generator) -> int:
        """A place from ``first`` on, before ``end``, where a word begins; whatever place if none does."""
        places = first + np.flatnonzero(self._starts_word[text[first:end]])
        return int(places[random.integers(len(places))]) if len(places) else int(random.integers(first, end))

    def _chosen(self, tokens: Ids, candidates: Ids, wanted: int, random: np.random.Generator) -> Ids:
        """Which of the candidates are predicted, ``wanted`` or, of whole words, fewer."""
        if not self._whole_words or not len(candidates):
            return random.permutation(candidates)[:wanted]
        words = np.cumsum(self._starts_word[tokens])[candidates]
        chosen: list[int] = []
        for word in random.permutation(np.unique(words)):
            of_word = candidates[words == word]
            if len(chosen) + len(of_word) <= wanted:
                chosen += of_word.tolist()
            if len(chosen) == wanted:
                break
        # A word that is longer than all that may be predicted is all that there is.
        return np.array(chosen, dtype=np.int64) if chosen else candidates[:wanted]


class MaskedExamples:
    """Makes the examples of one peer, in their order; see `Bert.forward` for what they are.

    A batch is ``(tokens, places, targets)``, int64 [B, k], [B, M] and [B, M]; with pairs also ``lengths`` and
    ``followed``, int64 [B] each.

    Attributes:
        context_length: k.
        number: the next example's.
        before: the last example's text, which the next one's may follow.
    """

    def __init__(self, masking: Masking, seed: int, peer: str, number: int = 0) -> None:
        """``seed`` and ``peer`` decide what is masked; ``number`` is the first example's."""
        self.context_length = masking.context_length
        self._masking, self.number = masking, number
        self._key = int.from_bytes(hashlib.sha256(f"{seed}\n{peer}\nmasks".encode()).digest()[:16])
        self.before: Ids = np.empty(0, dtype=np.int64)

    def batch(self, blocks: torch.Tensor) -> Batch:
        """The next examples, of blocks of text, int64 [B, `Masking.text_tokens`]."""
        rows = [self._example(block) for block in blocks.numpy()]
        return tuple(torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))

    def _example(self, block: Ids) -> tuple[Ids | np.int64, ...]:
        # Numbers of an example's own, whatever batch it is in.
        random = np.random.Generator(np.random.Philox(key=self._key, counter=self.number << 64))
        self.number += 1
        masking = self._masking
        if not masking.pairs:
            return masking.mask(masking.around(block), random)
        text = masking.piece_in(block)
        first, second = masking.cut(text, random)
        # Either kind is as long as both could be, or its length would tell.
        length = min(len(second), len(self.before) or len(second))
        # Nor do texts that follow end with their document: the last token would tell.
        length = int(random.integers((length + 1) // 2, length + 1))
        another = len(self.before) > 0 and random.random() < ANOTHER
        second = masking.part_of(self.before, length, random) if another else second[:length]
        self.before = text
        found = masking.mask(masking.around(first, second), random)
        length = len(found.tokens)
        padding = (0, masking.context_length - length)
        tokens = np.pad(found.tokens, padding, constant_values=masking.special.last)
        return tokens, found.places, found.targets, np.int64(length), np.int64(another)


class MaskedBatches:
    """Masked examples without end; a `BatchSource`.

    Attributes:
        tokens_per_example: k, however many of them are predicted.
    """

    def __init__(self, blocks: BatchSource, examples: MaskedExamples) -> None:
        """``blocks`` give inputs, of which ``examples`` are made."""
        self._blocks, self._examples = blocks, examples
        self.tokens_per_example = examples.context_length

    def __next__(self) -> Batch:
        """The next, on the CPU; see `MaskedExamples`."""
        return self._examples.batch(next(self._blocks)[0])

    def state_dict(self) -> dict[str, Any]:
        """The position in the blocks, and among the examples; serialisable as JSON."""
        examples = {"number": self._examples.number, "before": self._examples.before.tolist()}
        return {"blocks": self._blocks.state_dict(), "examples": examples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after ``state``.

        Raises:
            CheckpointError: ``state`` was not made by `state_dict`.
        """
        match state:
            case {"blocks": dict(blocks), "examples": {"number": int(number), "before": list(before)}}:
                self._examples.number, self._examples.before = number, np.array(before, dtype=np.int64)
                self._blocks.load_state_dict(blocks)
            case _:
                raise CheckpointError("not a position in masked text; resume from another checkpoint")
