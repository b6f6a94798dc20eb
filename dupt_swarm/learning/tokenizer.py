"""The swarm's tokenizer: our own byte-level BPE, or that of a model which was there before the swarm.

Ours has one special token, `<|endoftext|>`, after each document; an encoder's has four. Any Unicode text
survives `decode(encode(text))` unchanged, whatever the tokenizer was trained on: all 256 bytes are in the
vocabulary. Of another model's tokenizer, `Tokenizer.lossy` says whether text survives. With either, what
looks like a special token in a text is text like any other.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from dupt_swarm.disk.files import write_atomically
from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning.documents import Piece, together
from dupt_swarm.learning.tokenizer_json.opening import encode, find_template, going_on, parse
from dupt_swarm.learning.tokenizer_json.refusals import find_problem, losses
from dupt_swarm.learning.tokenizer_json.spelling import ALPHABET, spelling_of
from dupt_swarm.manifest import Manifest
from dupt_swarm.manifest.tables import TOKENIZER_BYTES_MAX

END_OF_TEXT = "<|endoftext|>"
"""The special token of ours, with id 0."""
MASK = "[MASK]"
ENCODER_SPECIAL = ("[SEP]", "[CLS]", MASK, "[PAD]")
"""Those of an encoder's, by id: what ends a text comes first there, too."""
# The most that training reads: more hardly changes the merges, and all distinct words are held in memory.
TRAINING_CHARACTERS = 1 << 28
BYTES = 256
LEAST_CHARACTERS = 256  # for which an empty piece counts, too: its bookkeeping takes as much memory

# What BERT and RoBERTa call them.
_FIRST, _LAST, _MASK, _PAD = ("[CLS]", "<s>"), ("[SEP]", "</s>"), (MASK, "<mask>"), ("[PAD]", "<pad>")


@dataclass(frozen=True)
class EncoderTokens:
    """The ids of what an encoder's sequences have besides text: [CLS] text [SEP], some of it [MASK].

    Attributes:
        first: before the first text; [CLS].
        last: after each text; [SEP].
        mask: in place of a token that is to be predicted; [MASK].
        pad: after a sequence that is shorter than others; None: it has none, and any id will do.
    """

    first: int
    last: int
    mask: int
    pad: int | None = None


class Tokenizer:
    """Text to ids and back. Made by `train_tokenizer`, or read by one of the two class methods.

    Attributes:
        end_of_text: the id that follows each document.
        begin_of_text: the id that a document begins after: the one that the tokenizer's own template puts
            before a text, or else `end_of_text`.
        template: the ids that the tokenizer's own template puts before a text, and after it.
        special_ids: the ids that stand for no text; `unknown` may occur in texts all the same.
        unknown: the id for what the vocabulary lacks; None: it lacks nothing.
        lossy: why text does not survive unchanged, such as "its normalizer (NFC) rewrites it"; empty: it
            does. SentencePiece's sign for the space, `▁`, is not counted: in a text it becomes a space.
        surplus: how many bytes the tokens of a document stand for besides its text: 1 where a space is
            put before it, or after its last word.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, data: bytes, end_of_text: int, *, encoder: bool
    ) -> None:
        """``backend``, of any kind that is supported, which ``data`` was parsed to.

        What ends a text becomes special if it is not.

        Raises:
            ValueError: it is of another kind, or has no such end; says of which.
        """
        # Some files carry the last settings of whoever saved them.
        backend.no_truncation()
        backend.no_padding()
        content = json.loads(backend.to_str())  # as this version of the library writes it
        vocabulary = backend.get_vocab()
        if problem := find_problem(content, json.loads(data).get("added_tokens", []), vocabulary):
            raise ValueError(problem)
        spelling = spelling_of(content["decoder"])
        assert spelling, "find_problem has seen to it"
        self._tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        if not 0 <= end_of_text < self.vocabulary_size:
            raise ValueError(f"there is no token {end_of_text} to end a text: it has {self.vocabulary_size}")
        special = frozenset(token["id"] for token in content["added_tokens"] if token["special"])
        added = vocabulary.keys() - backend.get_vocab(False).keys()
        # For text that begins a document, and for text that goes on in one; often the same.
        self._backend, self._going_on = backend, going_on(backend, content, spelling)
        for each in (self._backend, self._going_on):
            # Not part of tokenizer.json, so it must be set each time: text never becomes a special token.
            each.encode_special_tokens = True
            if end_of_text not in special:
                each.add_special_tokens([self._tokens[end_of_text]])
        model = content["model"]
        self.unknown = None if model.get("byte_fallback") else vocabulary.get(model.get("unk_token") or "")
        # A token that was added to the model's own is its own text; one that the model has too, as Gemma's
        # runs of spaces, is spelled like all of the model's.
        written = special | {vocabulary[token] for token in added}
        if spelling.goes_on:  # it stands for a word
            written -= {self.unknown}
        written |= {end_of_text} - special
        self._spelled = [
            token.encode() if index in written else spelling.read(token)
            for index, token in enumerate(self._tokens)
        ]
        self._data, self._encoder = data, encoder
        self.special_ids, self.end_of_text = special | {end_of_text}, end_of_text
        self.template = find_template(backend)
        before, _ = self.template
        self.begin_of_text = before[-1] if before else end_of_text
        self._marks_words = spelling.marks_words
        spaced = self.encode("a")
        self._puts_space = bool(spelling.goes_on) or b"".join(map(self.bytes_of, spaced)).startswith(b" ")
        self.surplus = int(self._puts_space or self._marks_words)
        lost = dict.fromkeys(losses(content, spelling, vocabulary))
        if self._puts_space and not spelling.goes_on and self.encode(" a") == spaced:
            lost["a space at its beginning is lost"] = None
        self.lossy = ", ".join(lost)

    @property
    def vocabulary_size(self) -> int:
        """How many ids there are: those of all tokens, added and special ones included."""
        return len(self._tokens)

    @property
    def prefix(self) -> list[int]:
        """What is before a document's own tokens: nothing where documents begin after the end of another.

        Nor for an encoder: its [CLS] begins a sequence, which may have several documents.
        """
        return [] if self._encoder or self.begin_of_text == self.end_of_text else [self.begin_of_text]

    @cached_property
    def encoder_tokens(self) -> EncoderTokens:
        """The special tokens of an encoder, which have BERT's names or RoBERTa's.

        Raises:
            ManifestError: one is missing, as in the tokenizer of a decoder.
        """
        special = {self.name_of(index): index for index in self.special_ids}
        found = [
            next((special[name] for name in names if name in special), None)
            for names in (_FIRST, _LAST, _MASK, _PAD)
        ]
        for names, index in zip((_FIRST, _LAST, _MASK), found[:3], strict=True):
            if index is None:
                raise ManifestError(
                    f"the tokenizer has no special token {names[0]} or {names[1]}, which an encoder needs: "
                    "it is of a model without [MASK]; take an encoder's, or train one for the swarm"
                )
        first, last, mask, pad = found
        assert first is not None and last is not None and mask is not None
        return EncoderTokens(first, last, mask, pad)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of `to_bytes()`, hexadecimal."""
        return hashlib.sha256(self._data).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, without `prefix` and `end_of_text`; the empty text has none.

        Raises:
            UsageError: the text holds half of a surrogate pair, which is no character.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], first: Sequence[bool] | None = None) -> list[list[int]]:
        """The ids of each text, computed on all cores.

        Args:
            texts: documents, or pieces of them.
            first: for each whether it begins its document; None: all do.

        Raises:
            UsageError: a text holds half of a surrogate pair, which is no character; or a foreign tokenizer
                fails.
        """
        if first is None or self._going_on is self._backend:
            return encode(self._backend, texts)
        both = list(zip(texts, first, strict=True))
        beginning = iter(encode(self._backend, [text for text, begins in both if begins]))
        continuing = iter(encode(self._going_on, [text for text, begins in both if not begins]))
        return [next(beginning if begins else continuing) for begins in first]

    def encode_pieces(
        self, pieces: Iterable[Piece], characters: int
    ) -> Iterator[list[tuple[Piece, list[int]]]]:
        """Each piece with its ids, as many together as have ``characters``; see `encode_batch`."""
        for batch in together(pieces, lambda piece: LEAST_CHARACTERS + len(piece.text), characters):
            ids = self.encode_batch([piece.text for piece in batch], [piece.first for piece in batch])
            yield list(zip(batch, ids, strict=True))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens written out; an incomplete character becomes U+FFFD."""
        return b"".join(self.spell(ids)).decode(errors="replace")

    def spell(self, ids: Iterable[int], before: Sequence[int] = ()) -> Iterator[bytes]:
        """The bytes of text of each id, as they come; perhaps parts of characters.

        Args:
            ids: a document's, or several documents' with what is between them.
            before: those before them in the first document, whose text is there already.

        Raises:
            UsageError: there is no such id.
        """
        edges = {self.begin_of_text, self.end_of_text}
        begins = self._puts_space and not before
        held = b" " if self._marks_words and before and self.bytes_of(before[-1]).endswith(b" ") else b""
        for index in ids:
            spelled = self.bytes_of(index)
            if index in edges:
                begins, held = self._puts_space, b""
            elif begins:
                begins, spelled = False, spelled.removeprefix(b" ")
            spelled = held + spelled
            # Whether a word's end is a space shows when another word follows.
            held = b" " if self._marks_words and spelled.endswith(b" ") else b""
            yield spelled.removesuffix(held)

    def token_bytes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Shape [vocabulary_size]: the bytes of text that each id stands for, 0 for special ones.

        A word's end counts as a space. In all the ids of a document they are `surplus` more than its text.
        """
        lengths = np.fromiter(map(len, self._spelled), dtype=np.int64, count=self.vocabulary_size)
        lengths[[*self.special_ids, self.begin_of_text]] = 0
        return lengths

    def starts_word(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Shape [vocabulary_size]: whether a word begins with this token, wherever it stands.

        It does with white space and punctuation, and not with letters, digits and parts of characters that
        follow on others. Special tokens are words of their own. The first token of a text begins a word in
        any case. Where tokens mark the end of a word and not its beginning, each counts as one.
        """
        starts = np.ones(self.vocabulary_size, dtype=np.bool_)
        if not self._marks_words:
            starts[:] = [_starts_word(spelled) for spelled in self._spelled]
            starts[[*self.special_ids]] = True
        return starts

    def bytes_of(self, index: int) -> bytes:
        """The bytes of text that the id stands for, perhaps parts of characters; see `spell`.

        Raises:
            UsageError: there is no such id.
        """
        if not 0 <= index < self.vocabulary_size:
            raise UsageError(f"there is no token {index}: the tokenizer has {self.vocabulary_size}")
        return self._spelled[index]

    def name_of(self, index: int) -> str:
        """What tokenizer.json calls this id, such as ``</s>``."""
        return self._tokens[index]

    def to_bytes(self) -> bytes:
        """The content of tokenizer.json, which Hugging Face's libraries read too."""
        return self._data

    @classmethod
    def from_foreign(
        cls, data: bytes, end_of_text: int, source: str = "tokenizer.json", *, encoder: bool = False
    ) -> Self:
        """Read the tokenizer.json of any model, as it is; ours is the plain case.

        BPE of bytes as in GPT-2 and Llama 3, of SentencePiece's pieces as in Llama 2, and of words as in
        GPT-1 is supported, and WordPiece as in BERT. What a tokenizer does to text, `lossy` says.

        Args:
            data: its content.
            end_of_text: the id that is to follow each document; the model's `eos_token_id`.
            source: where it comes from.
            encoder: whether the model is one; decoders may have such a tokenizer, too.

        Raises:
            ManifestError: it is not a tokenizer, or of a kind that is not supported; the reason is named.
        """
        backend = _parse(data, source)
        try:
            found = cls(backend, data, end_of_text, encoder=encoder)
            _try_out(found)
        except Exception as error:  # the library raises bare Exceptions here too
            raise ManifestError(f"{source}: {error}; use a model with another tokenizer") from error
        return found

    @classmethod
    def of(cls, manifest: Manifest, data: bytes, source: str = "the swarm's tokenizer") -> Self:
        """The tokenizer that ``manifest`` names.

        Raises:
            ManifestError: see `from_foreign`; or it has another number of ids.
        """
        wanted = manifest.tokenizer
        encoder = manifest.model.kind == "encoder"
        found = cls.from_foreign(data, wanted.end_of_text, source, encoder=encoder)
        if found.vocabulary_size != wanted.vocabulary_size:
            raise ManifestError(
                f"{source}: it has {found.vocabulary_size} ids, but `tokenizer.vocabulary_size` in the "
                f"manifest is {wanted.vocabulary_size}; give that the former"
            )
        return found

    def save(self, path: Path) -> None:
        """Write tokenizer.json to ``path`` atomically.

        Raises:
            FileError: the file cannot be written.
        """
        write_atomically(path, lambda file: file.write_bytes(self._data))


def _starts_word(spelled: bytes) -> bool:
    first = spelled.decode(errors="replace")[:1]
    return bool(first) and first != "\ufffd" and unicodedata.category(first)[0] not in "LMN"


# Cut in two, since corpora come in pieces.
PROBES = (
    ("The bear's  2 cubs,", "\n\tall 12345 of them…"),
    (" A naïve e\u0301 ﬁ", " 狐狸 🦊 ية <s> </s>\r\n"),
    ("\n", "  "),
)


def _try_out(tokenizer: Tokenizer) -> None:
    """Encode a few texts, and see that decoding gives them back if it is not lossy.

    Raises:
        ValueError: it does not do what it says.
        UsageError: it cannot encode a text.
    """
    before, _ = tokenizer.template
    if len(before) > 1 or not all(0 <= index < tokenizer.vocabulary_size for index in before):
        raise ValueError("its post-processor puts more before a text than one token of its own")
    # What the vocabulary lacks becomes a special token too, and its own name may be among that.
    special = sorted(tokenizer.special_ids - {tokenizer.unknown})
    names = list(map(tokenizer.name_of, special))
    # At the beginning of a document, within it, and behind a letter.
    begun, within, behind = (
        tokenizer.encode_batch(texts, [first] * len(texts))
        for texts, first in ((names, True), (names, False), ([f"a{name}" for name in names], True))
    )
    for index, name, *encoded in zip(special, names, begun, within, behind, strict=True):
        if any(index in ids for ids in encoded):
            raise ValueError(f"text that spells its token {name!r} becomes that special token")
    for probe in PROBES:
        first, second = tokenizer.encode_batch(probe, [True, False])
        found = tokenizer.decode(first + second)
        if not tokenizer.lossy and found != "".join(probe):
            raise ValueError(f"its parts do not go together: {''.join(probe)!r} comes back as {found!r}")


def _parse(data: bytes, source: str) -> tokenizers.Tokenizer:
    remedy = "use the one that the model came with"
    if len(data) > TOKENIZER_BYTES_MAX:
        raise ManifestError(
            f"{source}: a tokenizer.json of {len(data):,} bytes, and {TOKENIZER_BYTES_MAX:,} are the most; "
            f"{remedy}"
        )
    try:
        return parse(data)
    except Exception as error:  # the library raises bare Exceptions
        raise ManifestError(f"{source}: not a tokenizer.json: {error}; {remedy}") from error


def train_tokenizer(
    texts: Iterable[str], vocabulary_size: int, special_tokens: Sequence[str] = (END_OF_TEXT,)
) -> Tokenizer:
    """Learn the merges from the first 2²⁸ characters of ``texts``, which are read one at a time.

    The same texts give the same tokenizer, byte for byte. Its vocabulary is smaller than
    ``vocabulary_size`` where the texts have too few pairs that occur twice.

    Args:
        texts: to learn from.
        vocabulary_size: how many ids there are to be.
        special_tokens: `ENCODER_SPECIAL` for an encoder; the first one ends a text, and has the id 0.

    Raises:
        UsageError: ``vocabulary_size`` is under 256 and the special tokens, or a text is not valid Unicode.
    """
    least = BYTES + len(special_tokens)
    if vocabulary_size < least:
        raise UsageError(
            f"vocabulary_size = {vocabulary_size} is too small; "
            f"use at least {least}: {BYTES} bytes and {', '.join(special_tokens)}"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=2,
        special_tokens=list(map(_special, special_tokens)),
        initial_alphabet=sorted(ALPHABET),
        show_progress=False,
    )
    backend.train_from_iterator(_training_texts(texts), trainer)
    return Tokenizer.from_foreign(backend.to_str().encode(), 0)


def _special(name: str) -> AddedToken:
    """A masked word's space is masked with it, as in RoBERTa: other programs write it before the mask."""
    return AddedToken(name, lstrip=name == MASK, normalized=False, special=True)


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
