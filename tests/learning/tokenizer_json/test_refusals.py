"""A tokenizer.json that cannot be used is refused by name, whatever a stranger wrote into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning import tokenizer as tokenizer_module
from dupt_swarm.learning.tokenizer import Tokenizer
from tests.support.foreign_tokenizers import bert_uncased, changed, gpt2, llama2, llama3, smollm, unigram

GPT2, SMOLLM, LLAMA2, LLAMA3 = gpt2()[0], smollm()[0], llama2()[0], llama3()[0]
BERT = bert_uncased()[0]
BERT_DECODER = {"type": "WordPiece", "prefix": "##", "cleanup": True}
VOCABULARY: dict[str, int] = json.loads(SMOLLM)["model"]["vocab"]
WORD_PIECE = {
    "type": "WordPiece",
    "unk_token": "!",
    "max_input_chars_per_word": 9,
    "continuing_subword_prefix": "##",
}
SPECIAL = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


def split_by(pattern: str) -> bytes:
    """Byte-level BPE that cuts text by this regular expression."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return changed(GPT2, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, bytes_only]})


def spelling_its_end() -> bytes:
    """Pieces whose merges make `</s>`, though not behind the space that begins a text."""
    content = json.loads(LLAMA2)
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    for pair in (["▁", "<"], ["<", "/"], ["s", ">"], ["</", "s>"]):
        for piece in (*pair, "".join(pair)):
            vocabulary.setdefault(piece, len(vocabulary))
        merges.append(pair)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            changed(GPT2, model=WORD_PIECE),
            "its decoder is ByteLevel, and not one for WordPiece whose prefix within words is '##'",
        ),
        (changed(GPT2, model={"type": "WordLevel", "unk_token": "!"}), "its model is WordLevel"),
        (changed(GPT2, decoder=BERT_DECODER), "its decoder is WordPiece, and not one for bytes"),
        (changed(BERT, decoder=BERT_DECODER | {"prefix": "@@"}), "not one for WordPiece .* '##'"),
        (changed(BERT, model={"max_input_chars_per_word": 10**6}), "1000000 characters, and 1000 are"),
        (changed(BERT, model={"unk_token": "?!"}), "its unk_token '\\?!' is not in the vocabulary"),
        (
            changed(BERT, pre_tokenizer={"type": "WhitespaceSplit"}, normalizer=None),
            r"text that spells its token '\[PAD\]' becomes that special token",
        ),
        (unigram()[0], "its model is Unigram, and only BPE and WordPiece"),
        (changed(GPT2, model={"dropout": 0.1}), r"leaves out merges at random \(dropout = 0.1"),
        (changed(LLAMA2, model={"unk_token": "?!"}), "its unk_token '\\?!' is not in the vocabulary"),
        (changed(GPT2, decoder=None), "its decoder is missing"),
        (
            changed(
                GPT2, decoder={"type": "CTC", "pad_token": "!", "word_delimiter_token": "|", "cleanup": True}
            ),
            "CTC",
        ),
        (changed(SMOLLM, pre_tokenizer=None), "do not go together: .* comes back as"),
        (
            changed(SMOLLM, model={"vocab": VOCABULARY | {"zz": 999}}),
            "ids are not .*: 304 is missing; fill the gap",
        ),
        (changed(SMOLLM, model={"vocab": VOCABULARY | {"zz": 7}}), "ids are not .*: 304 is missing"),
        (
            changed(GPT2, added_tokens=[SPECIAL | {"id": 310, "content": "<x>"}]),
            "its token '<x>' has the id 310, but 300 would be the next",
        ),
        (changed(GPT2, normalizer=REPLACE), r"its normalizer \(Replace\) makes text longer"),
        (
            changed(GPT2, normalizer={"type": "Prepend", "prepend": "a" * 17}),
            r"\(Prepend\) makes text longer",
        ),
        (
            changed(GPT2, normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 13}),
            "13 parts, and 12",
        ),
        (
            changed(LLAMA2, pre_tokenizer=None, normalizer=None, model={"ignore_merges": True}),
            "text that spells its token '<unk>' becomes that special token",
        ),
        (spelling_its_end(), "text that spells its token '</s>' becomes that special token"),
        (
            changed(
                LLAMA3,
                post_processor=json.loads(LLAMA3.replace(b'"ids": [', b'"ids": [5, '))["post_processor"],
            ),
            "its post-processor puts more before a text than one token",
        ),
    ],
)
def test_what_is_not_supported(data: bytes, problem: str) -> None:
    """The reason is named, and the remedy."""
    with pytest.raises(ManifestError, match=f"theirs: .*{problem}.*; use a model with another tokenizer"):
        Tokenizer.from_foreign(data, 2, "theirs")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[1]",
        b"\xff",
        b"[" * 10_000,
        GPT2[:-20],
        changed(GPT2, added_tokens=None),
        changed(GPT2, added_tokens=[{"id": "1"}]),
        changed(GPT2, model={"vocab": {"a": -1}}),
        changed(GPT2, model={"vocab": {"a": 1 << 32}}),
        changed(GPT2, model={"vocab": ["a"]}),
        changed(GPT2, model={"merges": [["a", "no such token"]]}),
        changed(GPT2, pre_tokenizer={"type": "Nothing"}),
        b'{"normalizer": ' + b'{"type": "Sequence", "normalizers": [' * 5000 + b"]}" * 5000 + b"}",
        split_by("(("),
    ],
)
def test_garbage(data: bytes) -> None:
    """Whatever is no tokenizer.json is an ordinary error."""
    with pytest.raises(ManifestError, match=r"theirs: not a tokenizer\.json: .*; use the one that the model"):
        Tokenizer.from_foreign(data, 0, "theirs")


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}},
    ],
)
def test_what_makes_the_library_panic(changes: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    """A panic in the library is an ordinary error too."""
    with pytest.raises(ManifestError, match=r"theirs: .*the library failed"):
        Tokenizer.from_foreign(changed(GPT2, **changes), 2, "theirs")
    assert "panicked" in capfd.readouterr().err


def test_a_regular_expression_that_backtracks(capfd: pytest.CaptureFixture[str]) -> None:
    """It gives up after a while, with an ordinary error."""
    tokenizer = Tokenizer.from_foreign(split_by("(a+)+$| ?[^a]+"), 300)
    with pytest.raises(UsageError, match=r"cannot encode the text: .*retry-limit.*; leave it out, or use"):
        tokenizer.encode("a" * 60 + "!")
    assert "panicked" in capfd.readouterr().err


def test_a_file_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused before it is read."""
    monkeypatch.setattr(tokenizer_module, "TOKENIZER_BYTES_MAX", len(GPT2) - 1)
    with pytest.raises(ManifestError, match=r"theirs: a tokenizer\.json of .* bytes, and .* are the most"):
        Tokenizer.from_foreign(GPT2, 300, "theirs")
