"""Pairs of texts, of which the second is to be written for the first: a source and its target.

A source ends with the end of a text, and so does its target, before which the decoder is given the same
token: it begins ⟨end⟩ and predicts target ⟨end⟩. What is longer than the context is cut at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.epochs import shuffled
from dupt_swarm.learning.labelled.encoded import Encoded, EncodedBatches, Tokens
from dupt_swarm.learning.labelled.files import LabelledFiles
from dupt_swarm.learning.labelled.load import ROWS_AT_ONCE, chunks
from dupt_swarm.learning.labelled.tables import Row
from dupt_swarm.learning.reading import well_formed
from dupt_swarm.learning.tokenizer import Tokenizer

SOURCE, TARGET = COLUMNS = ("source", "target")
PairBatch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
POOL = 32  # steps whose examples are sorted by length: what is padded becomes a few percent


@dataclass(frozen=True)
class Pairs(Encoded[PairBatch]):
    """Sources and targets, encoded; see `Encoded`.

    The sequences of each are its source and its target, with the end of the text.

    Attributes:
        end: the token that begins what the decoder is given.
    """

    end: int

    @property
    def sequences_max(self) -> int:
        """One: each text goes through one half of the model."""
        return 1

    @property
    def lengths(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """How many tokens each has, both texts together."""
        return np.array([sum(map(len, pair)) for pair in self.sequences], dtype=np.int64)

    @cached_property
    def target_length(self) -> float:
        """Tokens of a target, the mean of all."""
        return sum(len(target) for _, target in self.sequences) / len(self.sequences)

    def batch(self, indices: Sequence[int]) -> PairBatch:
        """Some pairs, as `EncoderDecoder.forward` takes them.

        Each weighs as much as its target is longer than the mean of all, so that a step's loss is the same
        however it is cut into batches.
        """
        sources, targets = zip(*(self.sequences[index] for index in indices), strict=True)
        source, source_lengths = padded(sources)
        target, lengths = padded(targets)
        inputs = torch.cat((torch.full((len(target), 1), self.end), target[:, :-1]), dim=1)
        return source, source_lengths, inputs, target, lengths, lengths / self.target_length

    def longest(self, count: int) -> PairBatch:
        """As many of the longest sources, with as many of the longest targets, whosever they are."""
        sides = (sorted(side, key=len, reverse=True) for side in zip(*self.sequences, strict=True))
        pairs = list(zip(*sides, strict=True))[:count]
        return replace(self, sequences=pairs).batch(range(len(pairs)))


def padded(sequences: Sequence[Sequence[int] | Tokens]) -> tuple[Tensor, Tensor]:
    """int64 [B, T], with zeros after the shorter ones, and their lengths, int64 [B]."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    tokens = torch.zeros(len(sequences), int(lengths.max()), dtype=torch.int64)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence)] = torch.as_tensor(sequence)
    return tokens, lengths


def ended(tokens: Sequence[int], end: int, context_length: int) -> list[int]:
    """A text with its end, as far as the context has room for it."""
    return [*tokens, end][:context_length]


def load_pairs(files: LabelledFiles, tokenizer: Tokenizer, context_length: int) -> Pairs:
    """Read, check and encode pairs.

    Texts that are too long are cut, rows with an empty text left out; both are counted.

    Raises:
        CorpusError: file, row and remedy: what cannot be read, or a row that is no pair of texts.
        UsageError: a column is renamed that pairs lack.
    """
    end = tokenizer.end_of_text
    pairs: list[tuple[Tokens, ...]] = []
    rows = truncated = 0
    for read in chunks(read_rows(files), ROWS_AT_ONCE):
        rows += len(read)
        texts = [text for pair in filter(_is_written, read) for text in pair]
        encoded = tokenizer.encode_batch(texts)
        for pair in zip(encoded[::2], encoded[1::2], strict=True):
            truncated += any(len(tokens) >= context_length for tokens in pair)
            pairs.append(tuple(np.array(ended(one, end, context_length), dtype=np.int32) for one in pair))
    if not pairs:
        reason = f"all {rows} rows have an empty text" if rows else "there are no rows"
        raise CorpusError(f"{files.path}: {reason}; give some pairs of texts")
    return Pairs(pairs, context_length, truncated, rows - len(pairs), end)


def read_pairs(files: LabelledFiles) -> Iterator[tuple[str, str]]:
    """The source and the target of each pair that `load_pairs` keeps.

    Raises:
        CorpusError: see `load_pairs`.
        UsageError: likewise.
    """
    return filter(_is_written, read_rows(files))


def read_rows(files: LabelledFiles) -> Iterator[tuple[str, str]]:
    """The source and the target of each row, one of which may be empty.

    Raises:
        CorpusError: see `load_pairs`.
        UsageError: likewise.
    """
    files.check_names(COLUMNS)
    return ((text_in(row, SOURCE), text_in(row, TARGET)) for row in files.rows(COLUMNS))


def _is_written(pair: tuple[str, str]) -> bool:
    """Whether neither text is empty."""
    return all(map(str.strip, pair))


def text_in(row: Row, name: str) -> str:
    """The text in column ``name``.

    Raises:
        CorpusError: there is none; file, row and remedy are named.
    """
    value = row.cells[name]
    if isinstance(value, str):
        return well_formed(value)
    found = "nothing" if value is None else type(value).__name__
    raise CorpusError(
        f"{row.where}: `{name}` is {found}, not text; fix or remove that row", setting="columns"
    )


class PairBatches(EncodedBatches[PairBatch]):
    """The pairs of one peer without end: those of a step have similar lengths, so that little is padded.

    They come in an order of the peer's own in each epoch. It depends on no batch size, and neither does the
    state.
    """

    def __init__(self, pairs: Pairs, batch_size: int, step: int, seed: int, peer: str) -> None:
        """``step``: how many pairs a step has; for the others see `EncodedBatches`."""
        self._step, self._lengths = step, pairs.lengths
        super().__init__(pairs, batch_size, seed, peer)

    def _order_of(self, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """In random order, sorted by length within pools of some steps; then the steps in random order.

        An epoch begins with what is left of the step that the one before has begun, at random lengths.
        """
        order = super()._order_of(epoch)
        first = min(-epoch * self._count % self._step, self._count)
        last = self._count - (self._count - first) % self._step
        begun, whole, rest = np.split(order, [first, last])
        pools = np.arange(len(whole)) // (POOL * self._step)
        steps = whole[np.lexsort((self._lengths[whole], pools))].reshape(-1, self._step)
        steps = steps[shuffled(len(steps), self._seed, self._peer, epoch, 1)]
        return np.concatenate((begun, steps.ravel(), rest))
