"""Several corpora, each with a weight: their tokens, and how much of the training each of them is."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dupt_swarm.disk.home import expanded
from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.corpus import Corpus, Progress
from dupt_swarm.learning.documents import Source
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.learning.offered import OfferedText
from dupt_swarm.learning.token_files import Split
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.learning.wikipedia.articles import is_dump
from dupt_swarm.settings import DataSettings

UNFINISHED = re.compile(r"[0-9a-f]{16}\.building")  # a corpus' tokens that are being written


def texts_of(settings: DataSettings) -> list[TextFiles]:
    """The corpora on this machine that the settings name.

    Raises:
        UsageError: one is there twice, or a file is in two of them.
    """
    paths = [one.path for one in settings.corpora if one.path is not None]
    places = [_place(path) for path in paths]
    for number, path in enumerate(paths):
        if places[number] in places[:number]:
            raise UsageError(
                f"{path} is given twice; give it once, with the weight that it should have",
                setting="corpus",
            )
    texts = [
        TextFiles(path, settings.field, settings.strict, settings.language if asks else None)
        for path, asks in zip(paths, _asks_for_language(paths), strict=True)
    ]
    if len(texts) > 1:
        _refuse_shared_files(texts)
    return texts


def weight_of_offered(settings: DataSettings) -> float | None:
    """The weight of the text that the swarm offers; None: it is not asked for.

    Raises:
        UsageError: it is there twice.
    """
    weights = [one.weight for one in settings.corpora if one.path is None]
    if len(weights) > 1:
        raise UsageError(
            "what the swarm offers is given twice; give it once, with the weight that it should have",
            setting="corpus",
        )
    return weights[0] if weights else None


@dataclass(frozen=True)
class Mixture:
    """Tokenised corpora, and what the swarm offers: one thing at least.

    Attributes:
        corpora: those on this machine.
        offered: what the swarm offers, if that is asked for.
        weights: of each corpus, and of what the swarm offers.
    """

    corpora: Sequence[Corpus]
    weights: Sequence[float]
    offered: OfferedText | None = None

    @classmethod
    def prepare(
        cls,
        settings: DataSettings,
        tokenizer: Tokenizer,
        cache_dir: Path,
        *,
        context_length: int,
        seed: int,
        progress: Progress | None = None,
        offered: OfferedText | None = None,
    ) -> Self:
        """Open the corpora that the settings name, each in a folder in ``cache_dir``, or build them there.

        Tokens of corpora that are not among them stay, since they took hours; what a killed process left
        unfinished is removed. For arguments and errors see `Corpus.prepare`; progress is that of one corpus
        after the other.
        """
        texts, weight = texts_of(settings), weight_of_offered(settings)
        assert weight is None or offered is not None, "whoever asks for it is given it"
        _remove_unfinished(cache_dir)
        corpora = [
            Corpus.prepare(
                text,
                tokenizer,
                cache_dir / tokens_folder(text.path),
                context_length=context_length,
                seed=seed,
                progress=progress,
            )
            for text in texts
        ]
        weights = [one.weight for one in settings.corpora if one.path is not None]
        return cls(corpora, weights) if weight is None else cls(corpora, [*weights, weight], offered)

    @property
    def tokens(self) -> list[int]:
        """How many there are to train on, in each corpus, and in what the swarm offers."""
        own = [len(corpus.train) for corpus in self.corpora]
        return own if self.offered is None else [*own, sum(self.offered.shards)]

    @property
    def held_out(self) -> list[Split]:
        """What is not trained on, likewise."""
        own = [corpus.held_out for corpus in self.corpora]
        return own if self.offered is None else [*own, self.offered.held_out]

    @property
    def left_out(self) -> list[LeftOut]:
        """Files that could not be read."""
        return [one for corpus in self.corpora for one in corpus.left_out]

    @property
    def shares(self) -> list[float]:
        """How much of the training each of them is; together 1."""
        # The greatest weight is 1: no product grows beyond what a float can hold.
        greatest = max(self.weights)
        amounts = [
            tokens * (weight / greatest) for tokens, weight in zip(self.tokens, self.weights, strict=True)
        ]
        return [amount / sum(amounts) for amount in amounts]


def tokens_folder(path: Path | str) -> str:
    """What the folder of a corpus' tokens is called: it follows from the path alone, not from the weight."""
    return hashlib.sha256(os.fsencode(_place(path))).hexdigest()[:16]


def _place(path: Path | str) -> Path:
    return expanded(path).resolve()


def _asks_for_language(paths: Sequence[Path]) -> list[bool]:
    """Of which corpora to ask for a language: those with dumps, or all if none has any."""
    with_dumps = [
        any(is_dump(Path(source.path).name) for source in _found(TextFiles(path))) for path in paths
    ]
    return with_dumps if any(with_dumps) else [True] * len(paths)


def _refuse_shared_files(texts: Sequence[TextFiles]) -> None:
    """What is held out of one corpus must not be trained on as a part of another."""
    owners: dict[str, Path | str] = {}
    for path, source in ((text.path, source) for text in texts for source in _found(text)):
        owner = owners.setdefault(os.path.realpath(source.path), path)
        if owner != path:
            raise UsageError(
                f"{source.path} is in two corpora, {owner} and {path}; give corpora that share no file",
                setting="corpus",
            )


def _found(files: TextFiles) -> list[Source]:
    """The files of a corpus; none where that is an error, which whoever reads it reports."""
    try:
        return files.find()
    except CorpusError:
        return []


def _remove_unfinished(folder: Path) -> None:
    """Remove what was being written when a process was killed; one that still writes holds its lock."""
    for path in folder.glob("*.building"):
        if UNFINISHED.fullmatch(path.name):
            with path.with_suffix(".lock").open("w") as lock:
                if lock_file(lock):
                    shutil.rmtree(path, ignore_errors=True)
