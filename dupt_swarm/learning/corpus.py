"""An oracle's corpus: tokenised once into a cache, with some of its documents held out from training.

What is held out follows from the seed and the documents alone: about 2 % of the documents, by the hash of
how they begin, as long as they make up less than a tenth of the tokens. Where that gives too little, as with
one book or a few, the last 5 % of the tokens are held out too: whole documents if they are short, otherwise
the end of a long one. Text, cache and held-out part are private; nothing of them leaves the machine.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dupt_swarm.disk.home import expanded
from dupt_swarm.disk.locks import lock_file
from dupt_swarm.errors import CorpusError
from dupt_swarm.learning.documents import Source
from dupt_swarm.learning.left_out import LeftOut, TextFiles, problem_with
from dupt_swarm.learning.token_files import FILE_TOKENS, Split, SplitWriter, token_type
from dupt_swarm.learning.tokenizer import Tokenizer

FORMAT = 1
INDEX = "index.json"
TRAIN, HELD_OUT = "train", "held_out"
HELD_OUT_FRACTION = 0.02
MAX_HELD_OUT_RATIO = 0.1  # held-out ÷ training tokens: a long document must not cost the training
MIN_HELD_OUT_RATIO = 0.01
TAIL_FRACTION = 0.05
MAX_TAIL_TOKENS = 1 << 22  # more would not make the loss more accurate
BATCH_CHARACTERS = 1 << 22  # encoded at once; the tokens and their bookkeeping take up to 200 MB

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Corpus:
    """A tokenised corpus, memory-mapped. Each document has the tokenizer's `end_of_text` after it."""

    train: Split
    held_out: Split
    left_out: tuple[LeftOut, ...] = ()  # files that could not be read

    @classmethod
    def prepare(
        cls,
        text: TextFiles,
        tokenizer: Tokenizer,
        cache_dir: Path,
        *,
        context_length: int,
        seed: int,
        progress: Progress | None = None,
    ) -> Corpus:
        """Open the tokenised corpus in the folder ``cache_dir``, or build it there if it is not up to date.

        A cache made from the same files (path, size, time of change), tokenizer, field, seed and context
        length is used without reading the files. Otherwise it is replaced, as a whole or not at all. A
        second process that prepares the same cache waits for the first and uses its work.

        Args:
            text: which files.
            tokenizer: the swarm's.
            cache_dir: a folder for this corpus alone; it is made if need be.
            context_length: k; at least k + 1 tokens are held out, and at least k + 1 left to train on.
            seed: of the choice of the documents held out.
            progress: called with the bytes of the files read so far, and of all.

        Raises:
            CorpusError: the files cannot be read or are too short, or the cache cannot be written.
        """
        sources = text.find()
        made_from = {
            "format": FORMAT,
            "tokenizer_sha256": tokenizer.sha256,
            "prefix": tokenizer.prefix,
            "end_of_text": tokenizer.end_of_text,
            "context_length": context_length,
            "seed": seed,
            "field": text.field,
            "sources": [list(source) for source in sources],
        }
        cache = expanded(cache_dir).resolve()
        try:
            with _locked(cache):
                corpus = _open(cache, made_from)
                if corpus is None or _is_outdated(corpus.left_out, sources, text):
                    builder = _Builder(tokenizer, context_length, seed, progress)
                    _replace(cache, lambda folder: builder.build(text, sources, folder, made_from))
                    corpus = _open(cache, made_from)
        except OSError as error:
            raise _unwritable(cache, error) from error
        assert corpus, "a cache that was just built opens"
        return corpus


class _Builder:
    """Tokenises documents into the files of a new cache."""

    def __init__(
        self, tokenizer: Tokenizer, context_length: int, seed: int, progress: Progress | None
    ) -> None:
        self._left_out: list[LeftOut] = []
        self._tokenizer = tokenizer
        self._block = context_length + 1
        self._seed = seed
        self._progress = progress or (lambda *_: None)
        self._dtype = token_type(tokenizer.vocabulary_size)

    def build(
        self, text: TextFiles, sources: Sequence[Source], folder: Path, made_from: dict[str, Any]
    ) -> None:
        """Write the tokens and index.json into the empty ``folder``."""
        with (
            SplitWriter(folder, TRAIN, self._dtype) as train,
            SplitWriter(folder, HELD_OUT, self._dtype) as held_out,
        ):
            self._write(text, sources, train, held_out)
            train_tokens = self._hold_out_tail(text.path, train, held_out)
        index = {
            "made_from": made_from,
            "dtype": self._dtype,
            "shard_tokens": FILE_TOKENS,
            "tokens": {TRAIN: train_tokens, HELD_OUT: held_out.tokens},
            "left_out": self._left_out,
        }
        (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")

    def _write(
        self, text: TextFiles, sources: Sequence[Source], train: SplitWriter, held_out: SplitWriter
    ) -> None:
        """Write all pieces, those of the chosen documents to ``held_out``; reports progress by batches."""
        total = sum(source.size for source in sources)
        read, hold = 0, False

        def look() -> None:  # also a sign of life while a long file is looked through
            self._progress(read, total)

        pieces = text.read(sources, self._left_out.append, look)
        for batch in self._tokenizer.encode_pieces(pieces, BATCH_CHARACTERS):
            for piece, ids in batch:
                read = piece.bytes_read
                if piece.last:
                    ids.append(self._tokenizer.end_of_text)
                if piece.first:
                    ids = self._tokenizer.prefix + ids
                    hold = self._chosen(piece.text)
                # A document once refused is trained on to its end.
                hold = hold and held_out.tokens + len(ids) <= train.tokens * MAX_HELD_OUT_RATIO
                (held_out if hold else train).append(ids)
            look()
        self._progress(total, total)

    def _chosen(self, beginning: str) -> bool:
        digest = hashlib.sha256(f"{self._seed}\n{beginning}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < HELD_OUT_FRACTION * 2**64

    def _hold_out_tail(self, path: Path | str, train: SplitWriter, held_out: SplitWriter) -> int:
        """Hold out the end of the training tokens if that is needed; how many remain to train on."""
        tokens = train.tokens + held_out.tokens
        if tokens < 2 * self._block:
            raise CorpusError(
                f"{path}: the corpus holds {tokens} tokens, but {2 * self._block} are needed: "
                f"{self._block} to train on and {self._block} held out; give more text"
            )
        if held_out.tokens >= max(self._block, train.tokens * MIN_HELD_OUT_RATIO):
            return train.tokens
        split = train.flush()
        size = max(self._block - held_out.tokens, min(int(len(split) * TAIL_FRACTION), MAX_TAIL_TOKENS))
        start = self._tail_start(split, size)
        # What stays behind in the training files is not counted by the index, and so never read.
        held_out.append(split.read(start, len(split)))
        return start

    def _tail_start(self, split: Split, size: int) -> int:
        """Where the last document that begins in time for a tail of 1 to 2 × ``size`` does, else 1 ×."""
        latest = len(split) - size
        earliest = max(self._block, latest - size)
        ends = np.flatnonzero(split.read(earliest - 1, latest) == self._tokenizer.end_of_text)
        return earliest + int(ends[-1]) if len(ends) else latest


def _open(cache: Path, made_from: dict[str, Any]) -> Corpus | None:
    """The corpus in ``cache`` if it is sound and was made from the same things."""
    try:
        index = json.loads((cache / INDEX).read_text(encoding="utf-8"))
        if index["made_from"] != made_from:
            return None
        train, held_out = (
            Split.open(cache, name, index["tokens"][name], index["shard_tokens"], index["dtype"])
            for name in (TRAIN, HELD_OUT)
        )
        left_out = tuple(LeftOut(*one) for one in index.get("left_out", ()))
        return Corpus(train, held_out, left_out)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_outdated(left_out: Sequence[LeftOut], sources: Sequence[Source], text: TextFiles) -> bool:
    """Whether a file that was left out can be read by now, or must not be left out.

    Size and time of a file do not tell of its permissions.
    """
    if text.strict and left_out:
        return True
    again = {one.path for one in left_out if not one.lasting}
    return any(problem_with(source, text.field) is None for source in sources if source.path in again)


def _replace(cache: Path, build: Callable[[Path], None]) -> None:
    """Have ``build`` fill a folder beside ``cache``, then give it that name."""
    if cache.is_dir() and any(cache.iterdir()) and not (cache / INDEX).is_file():
        raise CorpusError(f"{cache}: this folder does not hold a corpus; choose another or empty it")
    building = cache.with_name(f"{cache.name}.building")
    # Leftovers of a killed process, then the outdated cache: renamed first, since deleting takes time.
    if building.exists():
        shutil.rmtree(building)
    if cache.exists():
        cache.rename(building)
        shutil.rmtree(building)
    building.mkdir(mode=0o700)
    try:
        build(building)
        building.rename(cache)
    finally:
        shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Keep other processes from ``cache``."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_name(f"{cache.name}.lock").open("w") as lock:
        lock_file(lock, wait=True)
        yield


def _unwritable(cache: Path, error: OSError) -> CorpusError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CorpusError(
            f"{cache}: no space left for the tokens; free some space, or choose a folder on another disk"
        )
    return CorpusError(
        f"{cache}: cannot be written: {error.strerror or error}; choose a folder that you may write to"
    )
