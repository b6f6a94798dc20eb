"""The loss on whole documents: every token of a document is predicted once, in windows that slide over it.

The windows are those of EleutherAI's lm-evaluation-harness (`get_rolling_token_windows` in its utils), and so
is the meaning of the figures: a document begins after `begin_of_text`, which is not predicted itself. The
first window predicts as many tokens as the context holds; each later one predicts the next ``stride`` tokens,
the last one fewer, and sees as many before them as the context has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.documents import Piece, together
from dupt_swarm.learning.evaluation import Evaluation, evaluating
from dupt_swarm.learning.interruptible import Look, parameter_count, sequences_at_once
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.cross_entropy import linear_cross_entropy
from dupt_swarm.learning.transformer.gpt import GPT

ENCODED_CHARACTERS = 1 << 20  # at once
POOL_BATCHES = 32  # sorted by length at once, so that windows of a batch need little padding

Item = TypeVar("Item")
Batch = tuple[Tensor, Tensor, Tensor]  # inputs and targets, int64 [B, T]; which are predicted, bool [B, T]
Predicted = tuple[float, Tensor]  # −log P of some tokens together, nats, and which they are, int64 [N]


class Window(NamedTuple):
    """Tokens of one document that follow on each other."""

    tokens: list[int]  # context_length + 1 at most; the last one is not read
    predicted: int  # how many of them are, at the end


def evaluate_documents(
    model: GPT,
    tokenizer: Tokenizer,
    documents: Iterable[str],
    *,
    stride: int | None,
    batch_size: int,
    device: torch.device,
    look: Look = lambda *_: None,
) -> Evaluation:
    """`evaluate_pieces` of documents that are whole."""
    pieces = (Piece(text, True, True, 0) for text in documents)
    return evaluate_pieces(
        model, tokenizer, pieces, stride=stride, batch_size=batch_size, device=device, look=look
    )


@torch.no_grad()
def evaluate_pieces(
    model: GPT,
    tokenizer: Tokenizer,
    pieces: Iterable[Piece],
    *,
    stride: int | None,
    batch_size: int,
    device: torch.device,
    look: Look = lambda *_: None,
) -> Evaluation:
    """The loss over all tokens of all documents, every token weighted equally; in fp32, summed up in fp64.

    The text is read as it is needed, so it may be of any length. Restores the model's mode afterwards.

    Args:
        model: on ``device``.
        tokenizer: the model's.
        pieces: the documents; see `read_pieces`.
        stride: tokens that each window predicts, but for the first of a document: 1 to context_length. None:
            context_length, which is fastest; a smaller one gives predictions more to see.
        batch_size: full windows at once at most, or shorter ones of as many tokens together.
        device: where to compute.
        look: called before each batch with the bytes of text that are predicted, and read, so far; it may
            raise `Abandoned`.

    Raises:
        UsageError: the stride is out of range.
        CorpusError: there is no text.
    """
    context = model.config.context_length
    size = sequences_at_once(batch_size, parameter_count(model), context, device) * context
    text = EncodedText(tokenizer, pieces)
    stride = context if stride is None else stride
    sliding = Sliding(context, stride, tokenizer.begin_of_text)
    windows = (window for ids, last in text for window in sliding.read(ids, last=last))

    def predict(batch: Batch) -> Predicted:
        inputs, targets, predicted = batch
        found = targets[predicted]
        h = model.hidden(inputs.to(device))[predicted.to(device)]
        return len(found) * linear_cross_entropy(h, model.output_weight, found.to(device)).item(), found

    return evaluate_encoded(model, tokenizer, text, _batches(windows, size), predict, look)


def evaluate_encoded(
    model: nn.Module,
    tokenizer: Tokenizer,
    text: EncodedText,
    batches: Iterable[Item],
    predict: Callable[[Item], Predicted],
    look: Look,
) -> Evaluation:
    """The loss over all tokens that ``predict`` finds in ``batches``, which are made of ``text`` as needed.

    Raises:
        CorpusError: there is no text.
    """
    token_bytes = torch.from_numpy(tokenizer.token_bytes())
    nats, tokens, text_bytes = 0.0, 0, 0
    with evaluating(model):
        for batch in batches:
            look(text_bytes, text.bytes_read)
            of_batch, predicted = predict(batch)
            nats += of_batch
            tokens += len(predicted)
            text_bytes += int(token_bytes[predicted].sum())
    text_bytes -= tokenizer.surplus * text.documents
    if text_bytes <= 0:
        raise CorpusError("there is no text to evaluate on; give some")
    return Evaluation.of(nats, tokens, text_bytes)


class Sliding:
    """Cuts documents into windows."""

    def __init__(self, context_length: int, stride: int, beginning: int) -> None:
        """``beginning``: the token that a document begins after.

        Raises:
            UsageError: the stride is not 1 to ``context_length``.
        """
        if not 1 <= stride <= context_length:
            raise UsageError(
                f"a stride of {stride} is impossible; use 1 to {context_length}, the length of the context",
                setting="stride",
            )
        self._context, self._stride, self._beginning = context_length, stride, beginning
        self._begin()

    def _begin(self) -> None:
        self._held = [self._beginning]
        self._predicted = 1  # of those held; what is not predicted comes after it
        self._next = self._context

    def read(self, ids: Sequence[int], *, last: bool) -> Iterator[Window]:
        """The windows that are complete with these tokens of a document; ``last``: it ends here."""
        self._held += ids
        while (waiting := len(self._held) - self._predicted) >= self._next or (last and waiting):
            size = min(waiting, self._next)
            self._predicted += size
            self._next = self._stride
            start = max(0, self._predicted - self._context - 1)
            yield Window(self._held[start : self._predicted], size)
        if last:
            self._begin()
        else:  # the next window predicts one token at least
            del self._held[: max(0, self._predicted - self._context)]
            self._predicted = min(self._predicted, self._context)


class EncodedText:
    """The tokens of pieces, encoded many at a time.

    Attributes:
        bytes_read: their text so far, in UTF-8.
        documents: how many of them have tokens.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: Iterable[Piece]) -> None:
        self._tokenizer, self._pieces = tokenizer, pieces
        self.bytes_read = self.documents = 0
        self._begun = False  # a document, with a token at least

    def __iter__(self) -> Iterator[tuple[list[int], bool]]:
        """The tokens of each piece, and whether it ends its document."""
        for batch in self._tokenizer.encode_pieces(self._pieces, ENCODED_CHARACTERS):
            self.bytes_read += sum(len(piece.text.encode()) for piece, _ in batch)
            for piece, ids in batch:
                self.documents += bool(ids) and not self._begun
                self._begun = not piece.last and (self._begun or bool(ids))
                yield ids, piece.last


def _batches(windows: Iterable[Window], size: int) -> Iterator[Batch]:
    """Windows of similar lengths together, with at most ``size`` tokens to read, padding included."""
    for pool in together(windows, lambda window: len(window.tokens) - 1, POOL_BATCHES * size):
        pool.sort(key=lambda window: len(window.tokens), reverse=True)
        start = 0
        while start < len(pool):
            longest = len(pool[start].tokens) - 1
            end = start + max(1, size // longest)
            yield _padded(pool[start:end])
            start = end


def _padded(windows: Sequence[Window]) -> Batch:
    longest = len(windows[0].tokens)
    tokens = torch.zeros(len(windows), longest, dtype=torch.int64)
    predicted = torch.zeros(len(windows), longest, dtype=torch.bool)
    for row, window in enumerate(windows):
        end = len(window.tokens)
        tokens[row, :end] = torch.tensor(window.tokens)
        predicted[row, end - window.predicted : end] = True
    # Padding comes last, where a causal model sees it in no prediction that counts.
    return tokens[:, :-1], tokens[:, 1:], predicted[:, 1:]
