"""Every token of a document is predicted once, in the windows of lm-evaluation-harness."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning import rolling
from dupt_swarm.learning.documents import Piece
from dupt_swarm.learning.evaluation import Evaluation
from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.rolling import Sliding, Window, evaluate_documents, evaluate_pieces
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.manifest import Model
from tests.support.foreign_tokenizers import KINDS
from tests.support.saved_models import TEXT, small_tokenizer

CPU = torch.device("cpu")
CONTEXT = 8
BEGINNING = 0
DOCUMENTS = [TEXT, "", "a", "The bear walks.", TEXT[:100] + "🐻", "x" * CONTEXT]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> GPT:
    return model_for(tokenizer)


def model_for(tokenizer: Tokenizer) -> GPT:
    return GPT(
        Model(
            vocabulary_size=tokenizer.vocabulary_size,
            context_length=CONTEXT,
            layers=2,
            heads=2,
            width=16,
            hidden_width=32,
            dropout=0.5,
            init_std=0.3,
        )
    )


def measure(model: GPT, tokenizer: Tokenizer, stride: int | None = None, batch_size: int = 3) -> Evaluation:
    return evaluate_documents(model, tokenizer, DOCUMENTS, stride=stride, batch_size=batch_size, device=CPU)


def cut(tokens: list[int], stride: int, part: int = 1000) -> list[Window]:
    """The windows of a document that arrives in parts."""
    sliding = Sliding(CONTEXT, stride, BEGINNING)
    starts = range(0, len(tokens), part)
    return [
        window
        for start in starts
        for window in sliding.read(tokens[start : start + part], last=start == starts[-1])
    ]


def theirs(tokens: list[int], stride: int) -> Iterator[Window]:
    """The windows of lm-evaluation-harness; context and continuation overlap in what is read."""
    for read, predicted in get_rolling_token_windows(tokens, BEGINNING, CONTEXT, CONTEXT - stride + 1):
        context, continuation = make_disjoint_window((read, predicted))
        assert context + continuation == [*read, predicted[-1]]
        yield Window(context + continuation, len(predicted))


@pytest.mark.parametrize("stride", range(1, CONTEXT + 1))
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 16, 17, 30, 100])
def test_windows_are_those_of_the_harness(length: int, stride: int) -> None:
    """For any length and stride the windows are lm-evaluation-harness's, in whatever parts the text comes."""
    tokens = list(range(1, length + 1))
    expected = list(theirs(tokens, stride))
    for part in (1, 3, 8, 1000):
        assert cut(tokens, stride, part) == expected


def test_windows_of_a_short_document() -> None:
    """The first window fills the context; the later ones see what fits beside the stride."""
    assert cut(list(range(1, 14)), 3) == [
        Window([0, 1, 2, 3, 4, 5, 6, 7, 8], 8),
        Window([3, 4, 5, 6, 7, 8, 9, 10, 11], 3),
        Window([5, 6, 7, 8, 9, 10, 11, 12, 13], 2),
    ]


@torch.no_grad()
def naive(model: GPT, tokenizer: Tokenizer, stride: int) -> tuple[float, int]:
    """Σ nats and tokens, one prediction at a time; a token sees what its window has before it."""
    model.eval()
    nats, count = 0.0, 0
    for document in DOCUMENTS:
        tokens = [tokenizer.begin_of_text, *tokenizer.encode(document)]
        for position in range(1, len(tokens)):
            # The window that predicts it ends after the first context, then after each stride.
            end = CONTEXT if position <= CONTEXT else CONTEXT + stride * -(-(position - CONTEXT) // stride)
            start = max(0, min(end, len(tokens) - 1) - CONTEXT)
            logits = model(torch.tensor([tokens[start:position]]))[0, -1].double()
            nats -= logits.log_softmax(0)[tokens[position]].item()
            count += 1
    return nats, count


@pytest.mark.parametrize("stride", [None, 1, 3])
def test_the_loss_is_that_of_one_prediction_at_a_time(
    model: GPT, tokenizer: Tokenizer, stride: int | None
) -> None:
    """Loss, tokens, bytes and bits per byte equal a naive sum, whatever the batch size."""
    nats, tokens = naive(model, tokenizer, stride or CONTEXT)
    text_bytes = sum(len(document.encode()) for document in DOCUMENTS)
    for batch_size in (1, 3, 64):
        found = measure(model, tokenizer, stride, batch_size)
        assert found.loss_nats == pytest.approx(nats / tokens, abs=1e-6)
        assert found.bits_per_byte == pytest.approx(nats / math.log(2) / text_bytes, abs=1e-6)
        assert found.perplexity == pytest.approx(math.exp(nats / tokens), rel=1e-5)
        assert (found.tokens, found.bytes) == (tokens, text_bytes)


def test_long_documents_arrive_in_pieces(
    model: GPT, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents in pieces give the figures of whole ones, however few characters are encoded at once."""
    pieces = [
        Piece(word, word.startswith("The"), word.endswith("bridge"), 0)
        for _ in range(20)
        for word in ("The", " bear walks", " over", " the bridge")
    ]
    documents = 20 * ["The bear walks over the bridge"]
    whole = evaluate_documents(model, tokenizer, documents, stride=None, batch_size=2, device=CPU)
    monkeypatch.setattr(rolling, "ENCODED_CHARACTERS", 25)
    monkeypatch.setattr(rolling, "POOL_BATCHES", 1)
    found = evaluate_pieces(model, tokenizer, pieces, stride=None, batch_size=2, device=CPU)
    assert (found.tokens, found.bytes) == (whole.tokens, whole.bytes)
    assert found.loss_nats == pytest.approx(whole.loss_nats, abs=1e-6)


def test_it_leaves_no_trace(model: GPT, tokenizer: Tokenizer) -> None:
    """Dropout is off, and afterwards mode and random state are what they were."""
    model.train()
    state = torch.get_rng_state()
    assert measure(model, tokenizer) == measure(model, tokenizer)
    assert model.training
    assert torch.equal(state, torch.get_rng_state())


def test_one_may_look_in_and_give_up(model: GPT, tokenizer: Tokenizer) -> None:
    """Before each batch it says how many bytes are done, of those read; giving up restores the mode."""
    seen: list[tuple[int, int]] = []

    def look(done: int, read: int) -> None:
        seen.append((done, read))
        if len(seen) == 3:
            raise Abandoned

    model.train()
    with pytest.raises(Abandoned):
        evaluate_documents(model, tokenizer, DOCUMENTS, stride=None, batch_size=1, device=CPU, look=look)
    assert model.training
    read = sum(len(document.encode()) for document in DOCUMENTS)
    assert [all_read for _, all_read in seen] == [read] * 3
    assert seen[0][0] == 0 < seen[1][0] < seen[2][0] < read


@pytest.mark.parametrize("stride", [0, -1, CONTEXT + 1])
def test_a_stride_beyond_the_context_is_refused(model: GPT, tokenizer: Tokenizer, stride: int) -> None:
    """The error says which strides there are."""
    with pytest.raises(UsageError, match=f"use 1 to {CONTEXT}"):
        measure(model, tokenizer, stride)


def test_no_text_is_an_error(model: GPT, tokenizer: Tokenizer) -> None:
    """Without text there is no loss."""
    with pytest.raises(CorpusError, match="there is no text"):
        evaluate_documents(model, tokenizer, ["", ""], stride=None, batch_size=1, device=CPU)


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_of_other_models(kind: str) -> None:
    """A document begins after the model's own token; bytes are those of the text that the tokenizer keeps."""
    tokenizer = Tokenizer.from_foreign(*KINDS[kind]())
    model = model_for(tokenizer)
    documents = [TEXT, "", "a", " The bear  walks.", "\n \n", "x" * 3 * CONTEXT]
    whole = evaluate_documents(model, tokenizer, documents, stride=None, batch_size=3, device=CPU)
    pieces = [
        Piece(text[start : start + 7], start == 0, start + 7 >= len(text), 0)
        for text in documents
        for start in range(0, max(1, len(text)), 7)
    ]
    cut = evaluate_pieces(model, tokenizer, iter(pieces), stride=None, batch_size=3, device=CPU)
    kept = sum(len(tokenizer.decode(tokenizer.encode(text)).encode()) for text in documents)
    assert whole.bytes == kept
    if not tokenizer.lossy:
        assert cut.bytes == kept == sum(len(text.encode()) for text in documents)
    with pytest.raises(CorpusError, match="there is no text"):
        evaluate_documents(model, tokenizer, ["", ""], stride=None, batch_size=1, device=CPU)


@pytest.mark.parametrize("kind", ["llama2", "openai-gpt"])
def test_the_loss_with_another_models_tokenizer(kind: str) -> None:
    """It is that of one prediction at a time."""
    tokenizer = Tokenizer.from_foreign(*KINDS[kind]())
    model = model_for(tokenizer)
    found = measure(model, tokenizer)
    nats, tokens = naive(model, tokenizer, CONTEXT)
    assert found.tokens == tokens
    assert found.loss_nats == pytest.approx(nats / tokens, abs=1e-5)
