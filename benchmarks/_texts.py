"""Four disjoint corpora of different kinds, from texts that every Python installation has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dupt_swarm.learning.corpus import Corpus
from dupt_swarm.learning.documents import find_sources, read_pieces
from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.learning.tokenizer import END_OF_TEXT, Tokenizer, train_tokenizer
from peers.demo import write_corpora


@dataclass(frozen=True)
class Texts:
    """One tokenizer, and the tokenised corpora by name, each with its own held-out part."""

    tokenizer: Tokenizer
    corpora: dict[str, Corpus]


def prepare_texts(
    folder: Path, vocabulary_size: int, context_length: int, seed: int, halvings: int = 0
) -> Texts:
    """Write the texts below ``folder``, train a tokenizer on all of them, and tokenise each corpus.

    ``halvings``: how often each of the four is cut in two halves, by document.
    """
    sources = write_four(folder / "texts")
    for _ in range(halvings):
        sources = [half for source in sources for half in _halve(source)]
    tokenizer = tokenizer_of(folder / "texts", vocabulary_size)
    corpora = {
        path.name: Corpus.prepare(
            TextFiles(path),
            tokenizer,
            folder / "tokens" / path.name,
            context_length=context_length,
            seed=seed,
        )
        for path in sources
    }
    return Texts(tokenizer, corpora)


def tokenizer_of(
    folder: Path, vocabulary_size: int, special_tokens: Sequence[str] = (END_OF_TEXT,)
) -> Tokenizer:
    """One that is trained on all texts below ``folder``."""
    pieces = (piece for source in find_sources(folder) for piece in read_pieces(source))
    return train_tokenizer((piece.text for piece in pieces), vocabulary_size, special_tokens)


def write_four(folder: Path) -> list[Path]:
    """The manual, the package descriptions, and two halves of the standard library by module."""
    manual, library, packages = write_corpora(folder)
    return [manual, packages, *_halve(library)]


def _halve(corpus: Path) -> list[Path]:
    """Two folders in place of one, with every other document each."""
    halves = [corpus.with_name(f"{corpus.name}-{letter}") for letter in "ab"]
    for half in halves:
        half.mkdir()
    for number, document in enumerate(sorted(corpus.iterdir())):
        document.rename(halves[number % 2] / document.name)
    corpus.rmdir()
    return halves
