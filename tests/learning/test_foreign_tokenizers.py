"""Tokenizers that came with other models: text, ids and bytes are what their own files say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from dupt_swarm.errors import ManifestError, UsageError
from dupt_swarm.learning.generation.text import characters
from dupt_swarm.learning.tokenizer import Tokenizer
from tests.support.foreign_tokenizers import (
    ENCODERS,
    KEEPING,
    KINDS,
    Made,
    changed,
    gpt2,
    llama2,
    llama3,
    openai_gpt,
)
from tests.support.saved_models import small_tokenizer
from tests.support.tiny import tiny_manifest

TOKENIZERS = {kind: Tokenizer.from_foreign(*make()) for kind, make in (KINDS | ENCODERS).items()}
PARTS = [
    "<s>",
    "</s>",
    "<|endoftext|>",
    "<unk>",
    "[MASK]",
    "[UNK]",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "7",
    "é",
    "e\u0301",
    "🦊",
    "The",
]
AWKWARD = st.lists(st.sampled_from(PARTS)).map("".join)
# The sign for the space is the one character that becomes another.
TEXT = st.one_of(st.text(), AWKWARD).map(lambda text: text.replace("▁", ""))
PREFIXED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}

each_kind = pytest.mark.parametrize("kind", TOKENIZERS)
each_keeping = pytest.mark.parametrize("kind", KEEPING)


@each_keeping
@given(text=TEXT)
def test_text_survives(kind: str, text: str) -> None:
    """Any text decodes to itself, and its tokens' bytes are its own and the space put before it."""
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes()[ids].sum() - tokenizer.surplus * bool(ids) == len(text.encode())
    assert tokenizer.lossy == ""


@each_kind
@given(text=TEXT)
def test_ids_are_the_librarys(kind: str, text: str) -> None:
    """They are those of the file as it is, without what its template adds; none of them is special."""
    tokenizer = TOKENIZERS[kind]
    theirs = tokenizers.Tokenizer.from_str(tokenizer.to_bytes().decode())
    theirs.encode_special_tokens = True
    ids = tokenizer.encode(text)
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert {tokenizer.begin_of_text, tokenizer.end_of_text}.isdisjoint(ids)
    before, after = tokenizer.template
    assert theirs.encode(f"{text}a").ids == [*before, *tokenizer.encode(f"{text}a"), *after]


@each_keeping
@given(text=TEXT, cut=st.integers(0, 40))
def test_a_document_in_pieces(kind: str, text: str, cut: int) -> None:
    """Wherever it is cut, its pieces neither gain nor lose anything."""
    tokenizer = TOKENIZERS[kind]
    cut = min(cut, len(text))
    pieces = [piece for piece in (text[:cut], text[cut:]) if piece]
    encoded = tokenizer.encode_batch(pieces, [True, False][: len(pieces)])
    assert tokenizer.decode([index for ids in encoded for index in ids]) == text


@each_kind
def test_a_cut_between_words(kind: str) -> None:
    """There it changes no token, with any tokenizer."""
    tokenizer = TOKENIZERS[kind]
    first, second = tokenizer.encode_batch(["The bear walks", " over the bridge."], [True, False])
    assert first + second == tokenizer.encode("The bear walks over the bridge.")


@each_kind
@given(data=st.data())
def test_text_as_it_comes(kind: str, data: st.DataObject) -> None:
    """Any ids decode alike at once and one by one, and those that follow on others go on where these end."""
    tokenizer = TOKENIZERS[kind]
    some = st.lists(st.integers(0, tokenizer.vocabulary_size - 1), max_size=20)
    before, ids = data.draw(some), data.draw(some)
    assert "".join(characters(tokenizer, ids)) == tokenizer.decode(ids)
    spelled = [b"".join(tokenizer.spell(before)), b"".join(tokenizer.spell(ids, before))]
    if tokenizer.end_of_text not in before and tokenizer.begin_of_text not in before:
        assert b"".join(spelled) == b"".join(tokenizer.spell(before + ids))


@each_kind
def test_decoding_is_the_librarys(kind: str) -> None:
    """A text's tokens become the text that the file's own decoder gives."""
    tokenizer = TOKENIZERS[kind]
    theirs = tokenizers.Tokenizer.from_str(tokenizer.to_bytes().decode())
    for text in ("The bear\n walks,  12 cubs.", " a", "über 🦊 狐\r\n"):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [
        ("gpt2", "<|endoftext|>", "<|endoftext|>"),
        ("smollm", "<|endoftext|>", "<|endoftext|>"),
        ("llama3", "<|begin_of_text|>", "<|end_of_text|>"),
        ("llama2", "<s>", "</s>"),
        ("metaspace", "<s>", "</s>"),
        ("openai-gpt", "\n</w>", "\n</w>"),
        ("bert-cased", "[CLS]", "[SEP]"),
    ],
)
def test_edges_of_a_document(kind: str, begin: str, end: str) -> None:
    """It begins after what the file's template puts there, or else after the end of another."""
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.name_of(tokenizer.begin_of_text) == begin
    assert tokenizer.name_of(tokenizer.end_of_text) == end
    assert tokenizer.prefix == ([] if begin == end else [tokenizer.begin_of_text])
    documents = [*tokenizer.prefix, *tokenizer.encode("bear"), tokenizer.end_of_text]
    shown = "" if begin == end else begin
    ended = f"{shown}bear{tokenizer.bytes_of(tokenizer.end_of_text).decode()}"
    assert tokenizer.decode(2 * documents) == 2 * ended
    assert tokenizer.token_bytes()[[tokenizer.begin_of_text, tokenizer.end_of_text]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("kind", "token", "expected"),
    [
        ("gpt2", "Ġthe", b" the"),
        ("gpt2", "Ċ", b"\n"),
        ("llama2", "▁the", b" the"),
        ("llama2", "<0x0A>", b"\n"),
        ("llama2", "<0xE4>", b"\xe4"),
        ("gemma", "▁▁", b"  "),
        ("gemma", "\n\n", b"\n\n"),
        ("openai-gpt", "the</w>", b"the "),
        ("openai-gpt", "b", b"b"),
        ("bert-cased", "the", b" the"),
        ("bert-cased", "##e", b"e"),
        ("bert-cased", ",", b","),
    ],
)
def test_what_a_token_stands_for(kind: str, token: str, expected: bytes) -> None:
    """▁ is a space, `<0x0A>` a byte, and the end of a word a space."""
    tokenizer = TOKENIZERS[kind]
    index = next(index for index in range(tokenizer.vocabulary_size) if tokenizer.name_of(index) == token)
    assert tokenizer.bytes_of(index) == expected
    assert tokenizer.token_bytes()[index] == len(expected)


def test_words() -> None:
    """Words come back in lower case and with single spaces; a word's space comes with the next one."""
    tokenizer = TOKENIZERS["openai-gpt"]
    assert tokenizer.decode(tokenizer.encode("The  BEAR,\n walks")) == "the bear , walks"
    before, ids = tokenizer.encode("The"), tokenizer.encode("bear walks")
    assert "".join(characters(tokenizer, ids, before)) == " bear walks"
    assert tokenizer.token_bytes()[ids].sum() - tokenizer.surplus == len("bear walks")


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("bert-uncased", "uber den bar, [UNK] walks"),
        ("bert-cased", "Über den Bär, [UNK] walks"),
    ],
)
def test_word_pieces(kind: str, shown: str) -> None:
    """Words come back with single spaces, what the vocabulary lacks as [UNK]; what looks special is text."""
    tokenizer = TOKENIZERS[kind]
    text = "Über  den\nBär, 狐 walks"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == "".join(characters(tokenizer, ids)) == shown
    assert tokenizer.token_bytes()[tokenizer.encode("the bear")].sum() - tokenizer.surplus == len("the bear")
    special = tokenizer.encoder_tokens
    assert [tokenizer.name_of(index) for index in (special.first, special.last, special.mask)] == [
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    assert special.pad == 0 and tokenizer.template == ([special.first], [special.last])
    ids = tokenizer.encode("[MASK][SEP] the [PAD]")
    assert not {special.first, special.last, special.mask, special.pad}.intersection(ids)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("bert-cased", "The bearwalk, 12", ["The", " bear|walk", ",", " 12"]),
        ("gpt2", "The bearwalk, 12", ["The", " bear|walk", ",", " 12"]),
        ("llama2", "The bear walks", [" The", " bear", " walks"]),
    ],
)
def test_where_words_begin(kind: str, text: str, words: list[str]) -> None:
    """Whatever a vocabulary marks, the beginning of a word or what goes on with it."""
    tokenizer = TOKENIZERS[kind]
    starts, found = tokenizer.starts_word(), []
    for number, index in enumerate(tokenizer.encode(text)):
        spelled = tokenizer.bytes_of(index).decode()
        found += [spelled] if starts[index] or not number else []
        found[-1] += "" if starts[index] or not number else spelled
    assert [word.strip() for word in found] == [word.replace("|", "").strip() for word in words]
    assert starts[sorted(tokenizer.special_ids)].all()


@pytest.mark.parametrize(
    ("make", "changes", "reason"),
    [
        (KINDS["metaspace"], {}, "a space at its beginning is lost"),
        (
            ENCODERS["bert-cased"],
            {},
            r"\(BertNormalizer\) rewrites it, .*drops white space, characters that its .* are lost$",
        ),
        (openai_gpt, {}, r"normalizer \(BertNormalizer\) rewrites .*drops white space.* are lost"),
        (gpt2, {"pre_tokenizer": PREFIXED}, "^a space at its beginning is lost$"),
        (gpt2, {"normalizer": {"type": "NFC"}}, r"^its normalizer \(NFC\) rewrites it$"),
        (llama2, {"model": {"byte_fallback": False}}, "^characters that its vocabulary lacks are lost$"),
    ],
)
def test_what_is_lost(make: Callable[[], Made], changes: dict[str, Any], reason: str) -> None:
    """A tokenizer that does not keep text says why."""
    data, end = make()
    assert re.search(reason, Tokenizer.from_foreign(changed(data, **changes), end).lossy)


@pytest.mark.parametrize(
    ("make", "pre_tokenizer"),
    [
        (gpt2, PREFIXED),
        (
            KINDS["metaspace"],
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
        ),
    ],
)
def test_a_space_after_added_tokens_is_told(make: Callable[[], Made], pre_tokenizer: dict[str, Any]) -> None:
    """Where a pre-tokenizer puts it, as where a normalizer does."""
    data, end = make()
    content = json.loads(changed(data, pre_tokenizer=pre_tokenizer))
    added = content["added_tokens"][0] | {"content": "<x>", "special": False, "normalized": False}
    content["added_tokens"].append(
        added | {"id": TOKENIZERS["gpt2" if make is gpt2 else "metaspace"].vocabulary_size}
    )
    tokenizer = Tokenizer.from_foreign(json.dumps(content).encode(), end)
    assert tokenizer.decode(tokenizer.encode("ab<x>cd")).endswith("ab<x> cd")
    assert "a space is put after '<x>'" in tokenizer.lossy


def test_an_ordinary_token_ends_no_text() -> None:
    """What text may contain cannot be what ends it."""
    data, _ = gpt2()
    with pytest.raises(ManifestError, match="text that spells its token '#' becomes that special token"):
        Tokenizer.from_foreign(data, TOKENIZERS["gpt2"].encode("#")[0])


def test_a_byte_that_is_not_in_the_vocabulary() -> None:
    """Bytes that are in no text may be missing; others make a tokenizer lossy."""
    content = json.loads(gpt2()[0])
    vocabulary = content["model"]["vocab"]
    for byte, lossy in ((0xFF, ""), (ord("~"), "characters that its vocabulary lacks are lost")):
        sign = next(
            token for token in vocabulary if TOKENIZERS["gpt2"].bytes_of(vocabulary[token]) == bytes([byte])
        )
        vocabulary[f"unused {byte}"] = vocabulary.pop(sign)
        assert Tokenizer.from_foreign(json.dumps(content).encode(), 300).lossy == lossy


def test_ours_is_the_plain_case() -> None:
    """Read as a foreign one, a tokenizer of ours is the same."""
    ours = small_tokenizer()
    again = Tokenizer.from_foreign(ours.to_bytes(), 0)
    text = "The bear <|endoftext|> 🦊"
    assert (again.encode(text), again.sha256, again.lossy) == (ours.encode(text), ours.sha256, "")
    assert (again.token_bytes() == ours.token_bytes()).all()
    assert (again.begin_of_text, again.end_of_text, again.prefix, again.surplus) == (0, 0, [], 0)


def test_settings_of_whoever_saved_it() -> None:
    """Truncation and padding that a file carries change no ids."""
    padding: dict[str, Any] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    data, end = gpt2()
    tokenizer = Tokenizer.from_foreign(changed(data, padding=padding, truncation=truncation), end)
    for text in ("The", "The bear walks over the bridge"):
        assert tokenizer.encode(text) == TOKENIZERS["gpt2"].encode(text)


def test_an_end_that_is_not_special() -> None:
    """What ends a text is special, also where the file says otherwise: text that spells it is text."""
    data, end = llama3()
    added = [token | {"special": token["id"] != end} for token in json.loads(data)["added_tokens"]]
    tokenizer = Tokenizer.from_foreign(changed(data, added_tokens=added), end)
    ids = tokenizer.encode("a <|end_of_text|> b")
    assert end not in ids
    assert tokenizer.decode(ids) == "a <|end_of_text|> b"


def test_the_manifests_tokenizer() -> None:
    """It has the manifest's end of a text, and as many ids as the manifest says."""
    data, end = llama2()
    size = TOKENIZERS["llama2"].vocabulary_size
    found = Tokenizer.of(tiny_manifest(vocabulary_size=size, tokenizer={"end_of_text": end}), data)
    assert (found.end_of_text, found.vocabulary_size) == (end, size)
    with pytest.raises(ManifestError, match=r"has 349 ids, but `tokenizer.vocabulary_size` .* is 348; give"):
        Tokenizer.of(tiny_manifest(vocabulary_size=348), data)


def test_no_such_token() -> None:
    """Ids that W_e has beyond the tokenizer's are no tokens."""
    for index in (-1, 301):
        with pytest.raises(UsageError, match=f"no token {index}: the tokenizer has 301"):
            TOKENIZERS["gpt2"].decode([index])
    with pytest.raises(ManifestError, match="no token 301 to end a text: it has 301"):
        Tokenizer.from_foreign(gpt2()[0], 301)
