"""Very small encoders: their manifests, a tokenizer with [MASK], and real text in documents."""

from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from dupt_swarm.learning.tokenizer import ENCODER_SPECIAL, Tokenizer, train_tokenizer
from dupt_swarm.manifest import Manifest
from tests.support.tiny import tiny_manifest


def encoder_tables(*, nsp: bool = True, **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Changes for `tiny_manifest` that make it an encoder's; ``changes`` are merged table by table."""
    tables: dict[str, dict[str, Any]] = {
        "model": {"bidirectional": True, "placement": "post", "feed_forward": "gelu_erf"},
        "objective": {"kind": "mlm", "nsp": nsp},
        "inner": {"embedding_scale": "own"},
    }
    return {name: tables.get(name, {}) | changes.get(name, {}) for name in tables.keys() | changes.keys()}


def manual(*letters: str) -> list[str]:
    """Python's manual, a document for each topic whose name begins with one of ``letters``; none: all."""
    return [text for name, text in sorted(topics.items()) if not letters or name[0].lower() in letters]


def manual_in(folder: Path, *letters: str) -> Path:
    """The same as a folder of text files."""
    folder.mkdir(parents=True)
    for number, text in enumerate(manual(*letters)):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder


def encoder_tokenizer(vocabulary_size: int = 600) -> Tokenizer:
    """Trained on some topics of the manual."""
    return train_tokenizer(manual("a", "b"), vocabulary_size, ENCODER_SPECIAL)


def encoder_manifest(tokenizer: Tokenizer, *, nsp: bool = True, **changes: dict[str, Any]) -> Manifest:
    """Of a very small encoder with this tokenizer."""
    tables = encoder_tables(nsp=nsp, **changes)
    return tiny_manifest(tokenizer.sha256, tokenizer.vocabulary_size, **tables)
