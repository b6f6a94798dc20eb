"""Makes a swarm's offer of text: tokenised, in shards that are all alike.

Documents are dealt out in an order drawn from the seed, long ones in pieces, so that each shard is a sample
of the whole: who has read a few has seen a bit of everything, and no two oracles need the same ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dupt_swarm.errors import CorpusError, UsageError
from dupt_swarm.learning.corpus import Corpus, Progress
from dupt_swarm.learning.epochs import shuffled
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.learning.token_files import Split, TokenIds, token_type
from dupt_swarm.learning.tokenizer import Tokenizer
from dupt_swarm.offer.shard_list import SHARD_TOKENS_MAX, SHARDS_MAX, Shard, ShardList
from dupt_swarm.replica.offered import offered_blob

SHARDS_MIN = 64  # of a small text too, so that oracles differ, as long as none gets too short
SHARD_TOKENS_MIN = 1 << 15
BLOCKS_MIN = 8  # in a shard
PIECE_TOKENS = 1 << 14  # of a long document
HELD_OUT_TOKENS_MAX = 1 << 20  # less than a shard's
LOOKED_AT = 1 << 24  # tokens at once, while ends of documents are looked for


def cut_offer(
    texts: Sequence[TextFiles],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    context_length: int,
    seed: int,
    progress: Progress | None = None,
) -> tuple[ShardList, list[LeftOut]]:
    """Tokenise ``texts``, and write list and shards into the new ``folder``, each named by its digest.

    Args:
        texts: what is offered.
        tokenizer: the swarm's.
        folder: is made, as a whole or not at all.
        context_length: k; no shard is shorter than some blocks of it, if the text suffices.
        seed: of the choice of the documents held out, and of the order of the others.
        progress: called with the bytes done, and of all, of one text after the other.

    Raises:
        CorpusError: the text cannot be read, is too short or too long, or there is no space for it.
        UsageError: the folder cannot be written.
    """
    building = folder.with_name(f"{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        tokens = building / "tokens"
        tokens.mkdir(parents=True)
        corpora = [
            Corpus.prepare(
                text,
                tokenizer,
                tokens / str(number),
                context_length=context_length,
                seed=seed,
                progress=progress,
            )
            for number, text in enumerate(texts)
        ]
        made = _Cutter(tokenizer, building, context_length, seed).cut(corpora)
        shutil.rmtree(tokens)
        building.rename(folder)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written ({error.strerror}); free some space, or choose another folder"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return made, [one for corpus in corpora for one in corpus.left_out]


class _Cutter:
    def __init__(self, tokenizer: Tokenizer, folder: Path, context_length: int, seed: int) -> None:
        self._end, self._type = tokenizer.end_of_text, np.dtype(token_type(tokenizer.vocabulary_size))
        self._folder, self._block, self._seed = folder, context_length + 1, seed

    def cut(self, corpora: Sequence[Corpus]) -> ShardList:
        """Write all files; the list last."""
        size = self._shard_tokens(sum(len(corpus.train) for corpus in corpora))
        pieces = self._shuffled([corpus.train for corpus in corpora], "train")
        shards = [self._write(tokens) for tokens in _filled(pieces, size) if len(tokens) >= self._block]
        pieces = self._shuffled([corpus.held_out for corpus in corpora], "held_out")
        held_out = self._write(next(_filled(pieces, HELD_OUT_TOKENS_MAX)))
        made = ShardList(held_out=held_out, shards=tuple(shards))
        (self._folder / made.digest).write_bytes(made.data)
        return made

    def _shard_tokens(self, tokens: int) -> int:
        most = SHARDS_MAX * SHARD_TOKENS_MAX
        if tokens > most:
            raise CorpusError(f"there are {tokens:,} tokens, and a swarm offers {most:,} at most; give less")
        # A manifest's longest context, eight times, is a quarter of the longest shard.
        least = max(SHARD_TOKENS_MIN, BLOCKS_MIN * self._block)
        return min(max(tokens // SHARDS_MIN, least), SHARD_TOKENS_MAX)

    def _shuffled(self, splits: Sequence[Split], name: str) -> Iterator[TokenIds]:
        """All documents of the splits, long ones in pieces."""
        pieces = np.concatenate(
            [
                np.stack([np.full(len(starts), which), starts, stops], axis=1)
                for which, (starts, stops) in enumerate(map(self._pieces, splits))
            ]
        )
        for number in shuffled(len(pieces), self._seed, name):
            which, start, stop = pieces[number].tolist()
            yield splits[which].read(start, stop)

    def _pieces(self, split: Split) -> tuple[np.ndarray, np.ndarray]:
        """Where pieces of documents begin and end."""
        ends = [np.array([0])]
        for start in range(0, len(split), LOOKED_AT):
            stop = min(start + LOOKED_AT, len(split))
            ends.append(start + 1 + np.flatnonzero(split.read(start, stop) == self._end))
        ends.append(np.array([len(split)]))
        borders = np.unique(np.concatenate(ends))
        counts = -(-np.diff(borders) // PIECE_TOKENS)
        starts = np.repeat(borders[:-1], counts)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = starts + within * PIECE_TOKENS
        return starts, np.append(starts[1:], len(split))

    def _write(self, tokens: TokenIds) -> Shard:
        data = np.ascontiguousarray(tokens, dtype=self._type).tobytes()
        shard = Shard(digest=offered_blob(data).digest, tokens=len(tokens))
        (self._folder / shard.digest).write_bytes(data)
        return shard


def _filled(pieces: Iterator[TokenIds], size: int) -> Iterator[TokenIds]:
    """The pieces one after the other, ``size`` tokens at a time; the last ones are fewer."""
    waiting: list[TokenIds] = []
    count = 0
    for piece in pieces:
        while count + len(piece) >= size:
            yield np.concatenate([*waiting, piece[: size - count]])
            piece = piece[size - count :]
            waiting, count = [], 0
        if len(piece):
            waiting.append(piece)
            count += len(piece)
    if waiting:
        yield np.concatenate(waiting)
