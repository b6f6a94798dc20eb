"""What our own tokenizers look like: byte-level BPE with `<|endoftext|>` as id 0, and nothing besides."""

from __future__ import annotations

import json
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from dupt_swarm.learning.tokenizer_json.spelling import ALPHABET

END_OF_TEXT = "<|endoftext|>"
"""The special token of ours, with id 0."""


def untrained() -> tokenizers.Tokenizer:
    """One of ours without a vocabulary."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    return backend


def find_difference(backend: tokenizers.Tokenizer) -> str:
    """Why this tokenizer, if it were one of ours, would lose text or misnumber tokens, or an empty string."""
    vocabulary = backend.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        return "its ids are not 0, 1, 2, …"
    if tokens[:1] != [END_OF_TEXT]:
        return f"id 0 is not {END_OF_TEXT}"
    if not vocabulary.keys() >= ALPHABET or not ALPHABET.issuperset("".join(tokens[1:])):
        return "its alphabet is not the 256 bytes"
    expected = untrained()
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
