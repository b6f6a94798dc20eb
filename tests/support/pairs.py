"""Very small encoder-decoders, and pairs of texts that are easy to learn."""

import random
import re
from pydoc_data.topics import topics
from typing import Any

from dupt_swarm.manifest import Manifest
from tests.support.tasks import ENGLISH, GERMAN
from tests.support.tiny import tiny_manifest

SEQ2SEQ: dict[str, dict[str, Any]] = {
    "model": {"encoder_layers": 1, "placement": "post", "positions": "sinusoidal", "feed_forward": "relu"},
    "objective": {"kind": "seq2seq", "label_smoothing": 0.1},
    "inner": {"embedding_scale": "own"},
}


def seq2seq_tables(**changes: dict[str, Any]) -> dict[str, Any]:
    """The 2017 Transformer as changes for `tiny_manifest` and `write_model`; ``changes`` are further ones."""
    return SEQ2SEQ | {name: SEQ2SEQ.get(name, {}) | keys for name, keys in changes.items()}


def pair_manifest(**changes: dict[str, Any]) -> Manifest:
    """A manifest of a very small encoder-decoder; ``changes`` as in `tiny_manifest`."""
    return tiny_manifest(**seq2seq_tables(**changes))


def two_tongues(count: int, seed: int) -> list[dict[str, Any]]:
    """One to four German words, and the same in English."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = draw.choices(range(len(GERMAN)), k=draw.randint(1, 4))
        texts = (" ".join(language[word] for word in words) for language in (GERMAN, ENGLISH))
        rows.append(dict(zip(("source", "target"), texts, strict=True)))
    return rows


def sentences(words: int = 24) -> list[dict[str, Any]]:
    """Sentences of Python's manual as targets, all different; as sources without case and punctuation.

    ``words``: more than four, and at most so many.
    """
    found: dict[str, str] = {}
    for text in topics.values():
        for paragraph in re.split(r"\n\s*\n", text):
            for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", " ".join(paragraph.split())):
                plain = re.sub(r"[^a-z0-9_ ]", "", sentence.lower())
                if re.match(r"[A-Z].*[.?!]$", sentence) and 4 < len(plain.split()) <= words:
                    found[" ".join(sentence.split())] = " ".join(plain.split())
    return [{"source": source, "target": target} for target, source in found.items()]
