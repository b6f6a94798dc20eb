"""Very small encoder-decoders, and pairs of texts that are easy to learn."""

import random
from typing import Any

from dupt_swarm.manifest import Manifest
from tests.support.tasks import ENGLISH, GERMAN
from tests.support.tiny import tiny_manifest

SEQ2SEQ: dict[str, dict[str, Any]] = {
    "model": {"encoder_layers": 1, "placement": "post", "positions": "sinusoidal", "feed_forward": "relu"},
    "objective": {"kind": "seq2seq", "label_smoothing": 0.1},
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
