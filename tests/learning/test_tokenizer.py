"""The tokenizer loses no text and trusts no file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning import tokenizer as tokenizer_module
from dupt_swarm.learning.tokenizer import (
    ENCODER_SPECIAL,
    END_OF_TEXT,
    EncoderTokens,
    Tokenizer,
    train_tokenizer,
)

TEXTS = ["The swarm trains one model; the swarm has no centre.\n", "Æsop's fox: 'naïve' 狐狸 🦊\r\n\t"] * 8
TOKENIZER = train_tokenizer(TEXTS, 400)


@given(st.text())
def test_round_trip_of_any_text(text: str) -> None:
    """Any Unicode text decodes to itself."""
    assert text == TOKENIZER.decode(TOKENIZER.encode(text))


@given(
    st.lists(st.sampled_from([END_OF_TEXT, "<|", " ", "\0", "\x1c", "\r\n", "'s", "é", "\u2028", "🦊", "a"]))
)
def test_round_trip_of_awkward_text(parts: list[str]) -> None:
    """Control characters, odd white space and a spelled-out special token are text like any other."""
    ids = TOKENIZER.encode("".join(parts))
    assert "".join(parts) == TOKENIZER.decode(ids)
    assert TOKENIZER.end_of_text not in ids


@given(st.text())
def test_token_bytes_add_up(text: str) -> None:
    """The bytes of a text's tokens are the bytes of the text."""
    assert len(text.encode()) == TOKENIZER.token_bytes()[TOKENIZER.encode(text)].sum()


def test_special_token() -> None:
    """Id 0 ends a document, stands for no bytes and is written out when decoded."""
    assert TOKENIZER.end_of_text == 0
    assert TOKENIZER.token_bytes()[0] == 0
    assert f"a{END_OF_TEXT}b" == TOKENIZER.decode([*TOKENIZER.encode("a"), 0, *TOKENIZER.encode("b")])


def test_batch_equals_single() -> None:
    """A batch gives what its texts give one by one."""
    assert [TOKENIZER.encode(text) for text in TEXTS] == TOKENIZER.encode_batch(TEXTS)


def test_merges_are_learned() -> None:
    """A frequent word becomes fewer tokens than it has bytes."""
    assert len(TOKENIZER.encode(" swarm")) < len(" swarm")
    assert 257 < TOKENIZER.vocabulary_size <= 400


def test_training_is_deterministic() -> None:
    """The same texts give the same bytes."""
    assert TOKENIZER.to_bytes() == train_tokenizer(iter(TEXTS), 400).to_bytes()


def test_training_reads_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training stops reading an endless source."""
    monkeypatch.setattr(tokenizer_module, "TRAINING_CHARACTERS", 1000)
    assert train_tokenizer(iter(lambda: "swarm ", None), 300).vocabulary_size >= 257


def test_too_small_vocabulary() -> None:
    """A vocabulary without room for all bytes is refused with the least size."""
    with pytest.raises(UsageError, match="at least 257"):
        train_tokenizer(TEXTS, 256)


def test_an_encoders_special_tokens() -> None:
    """They come first, what ends a text before all; text that spells them is text."""
    with pytest.raises(UsageError, match=r"at least 260: 256 bytes and \[SEP\], \[CLS\]"):
        train_tokenizer(TEXTS, 259, ENCODER_SPECIAL)
    tokenizer = train_tokenizer(TEXTS, 300, ENCODER_SPECIAL)
    assert tokenizer.encoder_tokens == EncoderTokens(first=1, last=0, mask=2, pad=3)
    assert (tokenizer.end_of_text, set(tokenizer.special_ids)) == (0, {0, 1, 2, 3})
    text = "[CLS] The [MASK][SEP]"
    assert min(tokenizer.encode(text)) > 3 and tokenizer.decode(tokenizer.encode(text)) == text


def test_robertas_special_tokens() -> None:
    """They have other names; padding may be missing."""
    tokenizer = train_tokenizer(TEXTS, 300, ("</s>", "<s>", "<mask>"))
    assert tokenizer.encoder_tokens == EncoderTokens(first=1, last=0, mask=2)


def test_a_decoders_tokenizer_has_no_mask() -> None:
    """Whoever asks is told what is missing, and what to do."""
    with pytest.raises(
        ManifestError, match=r"no special token \[CLS\] .*without \[MASK\]; take an encoder's"
    ):
        _ = TOKENIZER.encoder_tokens


def test_where_words_begin() -> None:
    """With a space or punctuation; letters and parts of characters go on with a word."""
    tokenizer = train_tokenizer(["The swarm has no centre. naïve"] * 8, 280, ENCODER_SPECIAL)
    starts = tokenizer.starts_word()
    spelled = [tokenizer.bytes_of(index) for index in range(4, tokenizer.vocabulary_size)]
    assert starts.dtype == bool and starts[:4].all()
    for index, found in enumerate(spelled, 4):
        text = found.decode(errors="replace")
        assert starts[index] == (not text[0].isalnum() and text[0] != "\ufffd")


def test_half_a_surrogate_pair() -> None:
    """Half a surrogate pair is no text: encoding and training say so."""
    with pytest.raises(UsageError, match="surrogate"):
        TOKENIZER.encode("a\ud83e")
    with pytest.raises(UsageError, match="surrogate"):
        train_tokenizer(["a\ud83e"], 300)


def test_bytes_and_hash_survive() -> None:
    """A tokenizer read back from its bytes has the same bytes, hash and ids."""
    again = Tokenizer.from_foreign(TOKENIZER.to_bytes(), 0)
    assert TOKENIZER.to_bytes() == again.to_bytes()
    assert hashlib.sha256(TOKENIZER.to_bytes()).hexdigest() == again.sha256
    assert TOKENIZER.encode(f"{END_OF_TEXT} swarm") == again.encode(f"{END_OF_TEXT} swarm")


def test_save(tmp_path: Path) -> None:
    """A saved tokenizer is the file's whole content, and nothing else is left beside it."""
    TOKENIZER.save(tmp_path / "tokenizer.json")
    assert TOKENIZER.to_bytes() == (tmp_path / "tokenizer.json").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


def test_formatting_does_not_matter() -> None:
    """The same tokenizer written with indentation is accepted and keeps its own hash."""
    data = json.dumps(json.loads(TOKENIZER.to_bytes()), indent=2).encode()
    assert hashlib.sha256(data).hexdigest() == Tokenizer.from_foreign(data, 0).sha256
