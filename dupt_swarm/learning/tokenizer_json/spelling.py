"""How tokens spell text: which bytes each of them stands for.

A vocabulary's tokens are strings, and the tokenizer's decoder says how they are to be read. There are four
ways: one character for each byte (GPT-2), a sign for the space and `<0x0A>` for a byte (SentencePiece), a
mark at the end of each word (GPT-1), or one before each token that begins none (BERT).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tokenizers import pre_tokenizers

# One character stands for each byte in tokenizer.json, as in GPT-2.
ALPHABET = frozenset(pre_tokenizers.ByteLevel.alphabet())
# Bytes that print in Latin-1 are their own characters; the others get those from U+0100 on, in order.
_PRINTING = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(0x100) if byte not in _PRINTING)
_BYTES = {chr(byte): byte for byte in _PRINTING} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}
_CHARACTERS = {byte: character for character, byte in _BYTES.items()}
_UTF8 = (*range(0xC0), *range(0xC2, 0xF5))  # the bytes that occur in it
_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Spelling:
    """One of the four ways.

    Attributes:
        read: the bytes of a token. A word's end is a space.
        byte_tokens: the tokens that any text can be written with, if the model has them all; none: it cannot.
        space: the sign for the space; empty: there is none.
        marks_words: whether the last word's space is not there in the text.
        goes_on: what marks a token that goes on with a word; others begin one, with the space before it,
            which the first word of a text does not have. Empty: tokens have no such mark.
    """

    read: Callable[[str], bytes]
    byte_tokens: Collection[str] = ()
    space: str = ""
    marks_words: bool = False
    goes_on: str = ""


def spelling_of(decoder: dict[str, Any] | None) -> Spelling | None:
    """What the table `decoder` of tokenizer.json asks for; None: another way."""
    parts = list(parts_of(decoder))
    kinds = [part["type"] for part in parts]
    if kinds == ["ByteLevel"]:
        return BYTE_LEVEL
    if kinds == ["BPEDecoder"]:
        return _words(parts[0]["suffix"])
    if kinds == ["WordPiece"] and parts[0]["prefix"]:
        return _word_pieces(parts[0]["prefix"], tidy=parts[0]["cleanup"])
    spaces = [sign for part in parts if (sign := _space(part))]
    if len(spaces) == 1 and len(spaces[0]) == 1 and set(kinds) <= _PIECES:
        return _pieces(spaces[0])
    return None


def parts_of(table: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A normalizer, pre-tokenizer or decoder, or what it is a sequence of."""
    if table is None:
        return
    inner = next((table[key] for key in ("normalizers", "pretokenizers", "decoders") if key in table), None)
    if table["type"] != "Sequence" or inner is None:
        yield table
        return
    for part in inner:
        yield from parts_of(part)


def _byte_level(token: str) -> bytes:
    try:
        return bytes(map(_BYTES.__getitem__, token))
    except KeyError:  # no byte is written so: the token was added to the vocabulary as text
        return token.encode()


BYTE_LEVEL = Spelling(_byte_level, [_CHARACTERS[byte] for byte in _UTF8])

_CLOSE = {".", "?", "!", ","}  # to the word before
_PIECES = {"Replace", "Metaspace", "ByteFallback", "Fuse", "Strip"}


def _space(decoder: dict[str, Any]) -> str:
    if decoder["type"] == "Metaspace":
        return str(decoder["replacement"])
    if decoder["type"] == "Replace" and decoder["content"] == " ":
        return str(decoder["pattern"].get("String", ""))
    return ""


def _pieces(space: str) -> Spelling:
    def read(token: str) -> bytes:
        if byte := _BYTE_PIECE.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.replace(space, " ").encode()

    return Spelling(read, [f"<0x{byte:02X}>" for byte in _UTF8], space=space)


def _words(suffix: str) -> Spelling:
    def read(token: str) -> bytes:
        return (token.removesuffix(suffix) + " " if token.endswith(suffix) else token).encode()

    return Spelling(read, marks_words=True)


def _word_pieces(prefix: str, *, tidy: bool) -> Spelling:
    """``tidy``: no space comes before punctuation."""

    def read(token: str) -> bytes:
        if token.startswith(prefix):
            return token.removeprefix(prefix).encode()
        return (token if tidy and token in _CLOSE else f" {token}").encode()

    return Spelling(read, goes_on=prefix)
