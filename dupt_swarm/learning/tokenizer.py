"""The swarm's tokenizer: byte-level BPE with one special token, `<|endoftext|>`, after each document.

Any Unicode text survives `decode(encode(text))` unchanged, whatever the tokenizer was trained on: all 256
bytes are in the vocabulary, and `<|endoftext|>` in a text is text like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import ManifestError, UsageError

END_OF_TEXT = "<|endoftext|>"
MIN_VOCABULARY_SIZE = 1 + 256
# The most that training reads: more hardly changes the merges, and all distinct words are held in memory.
TRAINING_CHARACTERS = 1 << 28
# One character stands for each byte in tokenizer.json, as in GPT-2.
ALPHABET = frozenset(pre_tokenizers.ByteLevel.alphabet())
# Bytes that print in Latin-1 are their own characters; the others get those from U+0100 on, in order.
_PRINTING = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(0x100) if byte not in _PRINTING)
_BYTES = {chr(byte): byte for byte in _PRINTING} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}


class Tokenizer:
    """A byte-level BPE tokenizer. Made by `train_tokenizer` or `from_bytes`."""

    end_of_text = 0
    """The id that follows each document."""

    def __init__(self, backend: tokenizers.Tokenizer, data: bytes) -> None:
        # Not part of tokenizer.json, so it must be set each time: text never becomes the special token.
        backend.encode_special_tokens = True
        self._backend = backend
        self._data = data

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are: bytes, merges and `<|endoftext|>`."""
        return self._backend.get_vocab_size()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of `to_bytes()`, hexadecimal."""
        return hashlib.sha256(self._data).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without `end_of_text`; the empty text has none.

        Raises:
            UsageError: the text holds half of a surrogate pair, which is no character.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, computed on all cores.

        Raises:
            UsageError: a text holds half of a surrogate pair, which is no character.
        """
        try:
            return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts))]
        except TypeError as error:
            raise UsageError(
                "the text is not valid Unicode: it holds half of a surrogate pair; replace that character"
            ) from error

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, with `<|endoftext|>` written out; an incomplete character becomes U+FFFD."""
        return self._backend.decode(list(ids), skip_special_tokens=False)

    def token_bytes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Shape [vocabulary_size]: the bytes of text that each id stands for, 0 for `end_of_text`."""
        lengths = np.zeros(self.vocabulary_size, dtype=np.int64)
        for token, index in self._backend.get_vocab().items():
            lengths[index] = len(token)
        lengths[self.end_of_text] = 0
        return lengths

    def bytes_of(self, index: int) -> bytes:
        """The bytes of text that the id stands for, perhaps parts of characters; see `decode`.

        Raises:
            UsageError: there is no such id.
        """
        token = self._backend.id_to_token(index)
        if token is None:
            raise UsageError(f"there is no token {index}: the tokenizer has {self.vocabulary_size}")
        return END_OF_TEXT.encode() if index == self.end_of_text else bytes(map(_BYTES.__getitem__, token))

    def to_bytes(self) -> bytes:
        """The content of tokenizer.json, which Hugging Face's libraries read too."""
        return self._data

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "the swarm's tokenizer") -> Self:
        """Read a tokenizer back from the content of tokenizer.json.

        Raises:
            ManifestError: it is not a tokenizer, or not one like those that `train_tokenizer` makes.
        """
        try:
            backend = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:  # the library raises bare Exceptions
            raise ManifestError(
                f"{source}: not a tokenizer.json: {error}; `dupt-peer new` writes one"
            ) from error
        problem = _find_problem(backend)
        if problem:
            raise ManifestError(f"{source}: {problem}; `dupt-peer new` writes a suitable one")
        return cls(backend, data)

    def save(self, path: Path) -> None:
        """Write tokenizer.json to ``path`` atomically.

        Raises:
            FileError: the file cannot be written.
        """
        write_atomically(path, lambda file: file.write_bytes(self._data))


def train_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
    """Learn the merges from the first 2²⁸ characters of ``texts``, which are read one at a time.

    The same texts give the same tokenizer, byte for byte. Its vocabulary is smaller than
    ``vocabulary_size`` where the texts have too few pairs that occur twice.

    Raises:
        UsageError: ``vocabulary_size`` is under 257, or a text is not valid Unicode.
    """
    if vocabulary_size < MIN_VOCABULARY_SIZE:
        raise UsageError(
            f"vocabulary_size = {vocabulary_size} is too small; "
            f"use at least {MIN_VOCABULARY_SIZE}: 256 bytes and {END_OF_TEXT}"
        )
    backend = _untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(ALPHABET),
        show_progress=False,
    )
    backend.train_from_iterator(_training_texts(texts), trainer)
    return Tokenizer.from_bytes(backend.to_str().encode())


def _untrained() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    return backend


def _training_texts(texts: Iterable[str]) -> Iterator[str]:
    remaining = TRAINING_CHARACTERS
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"a text is not valid Unicode: {error.reason}; replace that character"
            ) from error
        yield text[:remaining]
        remaining -= len(text)
        if remaining <= 0:
            return


def _find_problem(backend: tokenizers.Tokenizer) -> str:
    """Why this tokenizer would lose text or misnumber tokens, or an empty string."""
    vocabulary = backend.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        return "its ids are not 0, 1, 2, …"
    if tokens[:1] != [END_OF_TEXT]:
        return f"id 0 is not {END_OF_TEXT}"
    if not vocabulary.keys() >= ALPHABET or not ALPHABET.issuperset("".join(tokens[1:])):
        return "its alphabet is not the 256 bytes"
    expected = _untrained()
    expected.add_special_tokens([END_OF_TEXT])
    # Both as this version of the library writes them, so that a file of another version compares alike.
    found, wanted = _structure(backend), _structure(expected)
    differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    return f"`{differing[0]}` is not that of a byte-level BPE" if differing else ""


def _structure(backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """All of tokenizer.json except the library's version, the vocabulary and the merges."""
    content: dict[str, Any] = json.loads(backend.to_str())
    return {
        **content,
        "version": None,
        "model": {key: value for key, value in content["model"].items() if key not in ("vocab", "merges")},
    }
