"""Text comes in whole characters as soon as they are there, and ends before a stop word."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.errors import UsageError
from dupt_swarm.learning.generation.generate import generate
from dupt_swarm.learning.generation.sampling import Sampling
from dupt_swarm.learning.generation.text import characters, continue_text, until
from dupt_swarm.learning.objectives import decoder_of
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.transformer.gpt import GPT
from dupt_swarm.models.saved_model import SavedModel
from tests.support.foreign_tokenizers import KINDS
from tests.support.saved_models import small_tokenizer, write_model

TOKENIZER = small_tokenizer()
TOKENS = st.lists(st.integers(0, TOKENIZER.vocabulary_size - 1), max_size=40)
SAMPLING = Sampling(tokens=60, seed=4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> SavedModel:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(saved: SavedModel) -> GPT:
    built = saved.build(torch.device("cpu"))
    assert isinstance(built, GPT)
    return built


@given(TOKENS)
def test_characters_are_those_of_the_whole_text(tokens: list[int]) -> None:
    """Joined, the pieces of any tokens are what decoding all at once gives, broken characters too."""
    assert "".join(characters(TOKENIZER, tokens)) == TOKENIZER.decode(tokens)


@given(st.text())
def test_no_character_is_cut(text: str) -> None:
    """Every piece of a text's tokens is whole characters of it, none of them a replacement."""
    pieces = list(characters(TOKENIZER, TOKENIZER.encode(text)))
    assert "".join(pieces) == text
    assert all(pieces)


def test_a_character_waits_for_its_last_byte_only() -> None:
    """The four bytes of a bear, a token each, give one piece; what is before and after does not wait."""
    tokens = iter(TOKENIZER.encode("a🐻b"))
    consumed: list[int] = []
    pieces = characters(TOKENIZER, (consumed.append(token) or token for token in tokens))  # type: ignore[func-returns-value]
    assert [(piece, len(consumed)) for piece in pieces] == [("a", 1), ("🐻", 5), ("b", 6)]


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 30), max_size=8),
)
def test_text_ends_before_the_first_stop_word(text: str, stop: list[str], cuts: list[int]) -> None:
    """However the text is split, what is yielded ends where the first complete stop word begins."""
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(word) for word in stop)]
    expected = text
    if ends:
        expected = min((text[: ends[0]].removesuffix(word) for word in stop), key=len)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)]
    found = list(until(pieces, stop))
    assert "".join(found) == expected
    assert all(found)


def test_what_may_become_a_stop_word_is_held_back() -> None:
    """A beginning of a stop word is yielded only when it turns out to be none."""
    assert list(until(["one E", "N", "DE", " two EN"], ["END."])) == ["one ", "END", "E two ", "EN"]
    assert list(until(["one E", "N", "D", "never"], ["END"])) == ["one "]


def test_it_stops_reading_at_the_stop_word(model: GPT, saved: SavedModel) -> None:
    """Tokens after the stop word are not computed."""

    def pieces():
        yield "a STOP b"
        raise AssertionError("it went on")

    assert list(until(pieces(), ["STOP"])) == ["a "]
    text = "".join(continue_text(model, saved.tokenizer, "The", SAMPLING))
    word = text[20:23]
    assert "".join(continue_text(model, saved.tokenizer, "The", SAMPLING, [word])) == text.split(word)[0]


def test_text_is_that_of_the_tokens(model: GPT, saved: SavedModel) -> None:
    """The text is what the tokens after the encoded prompt say."""
    end = saved.tokenizer.end_of_text
    tokens = generate(model, saved.tokenizer.encode("The bear"), SAMPLING, end=end)
    expected = saved.tokenizer.decode(list(tokens))
    assert expected
    assert "".join(continue_text(model, saved.tokenizer, "The bear", SAMPLING)) == expected


def test_an_empty_prompt_begins_a_document(model: GPT, saved: SavedModel) -> None:
    """Without a prompt the model writes what comes after the end of another text."""
    end = saved.tokenizer.end_of_text
    expected = saved.tokenizer.decode(list(generate(model, [end], SAMPLING, end=end)))
    assert "".join(continue_text(model, saved.tokenizer, "", SAMPLING)) == expected


def test_a_tasks_own_tokens_are_never_written(tmp_path: Path) -> None:
    """A model with rows of W_e beyond the tokenizer's writes tokens that there is text for."""
    tokenizer = small_tokenizer()
    objective = {"kind": "classification", "labels": ["a", "b"]}
    saved = write_model(
        tmp_path, model={"vocabulary_size": tokenizer.vocabulary_size + 3}, objective=objective
    )
    decoder = decoder_of(saved.build(torch.device("cpu")))
    with torch.no_grad():
        decoder.wte.weight[-3:] *= 100  # unbearably attractive, one way or the other
    assert list(continue_text(decoder, saved.tokenizer, "The", SAMPLING))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", ["", "The bear"])
def test_tokenizers_of_other_models(kind: str, prompt: str, tmp_path: Path) -> None:
    """A prompt begins as the model's texts do; what follows joins it as in one text, and no unused row."""
    tokenizer = Tokenizer.from_foreign(*KINDS[kind]())
    size = tokenizer.vocabulary_size
    saved = write_model(tmp_path, tokenizer, model={"vocabulary_size": size + 19})
    model = decoder_of(saved.build(torch.device("cpu")))
    with torch.no_grad():
        model.wte.weight[size:] *= 100  # unbearably attractive, one way or the other
    encoded, end = tokenizer.encode(prompt), tokenizer.end_of_text
    begun = [*tokenizer.prefix, *encoded] or [end]
    tokens = list(generate(model, begun, SAMPLING, end=end, vocabulary_size=size))
    assert len(tokens) > 5
    written = "".join(continue_text(model, saved.tokenizer, prompt, SAMPLING))
    whole = b"".join(tokenizer.spell([*encoded, *tokens])).decode(errors="replace")
    assert tokenizer.decode(encoded) + written == whole


def test_what_makes_no_sense_is_refused(model: GPT, saved: SavedModel) -> None:
    """An empty stop word and half a character are errors, before anything is written."""
    with pytest.raises(UsageError, match="a stop word is empty"):
        continue_text(model, saved.tokenizer, "The", SAMPLING, ["a", ""])
    with pytest.raises(UsageError, match="half of a surrogate pair"):
        continue_text(model, saved.tokenizer, "\ud800", SAMPLING)
