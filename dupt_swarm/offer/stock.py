"""The shards of a swarm's offer that are on this machine, and those that come next.

Nothing is believed, neither of the network nor of the disk: what is read has the digest by which the list
names it, as many tokens, and only ids that the tokenizer has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from dupt_swarm.disk.folders import SwarmFolder
from dupt_swarm.errors import CorpusError, NodeError, UsageError
from dupt_swarm.learning.offered import AHEAD, shard_order
from dupt_swarm.learning.token_files import Split, TokenIds, token_type
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.messages import OfferedMissing, OfferedName
from dupt_swarm.offer.shard_list import LIST_BYTES_MAX, Shard, ShardList, bytes_of
from dupt_swarm.replica.offered import offered_blob
from dupt_swarm.swarm import Swarm

WAIT_SECONDS = 300.0  # for the first file, and then for each
LOOK_SECONDS = 0.1
TRIED = 64  # shards, until one of them is here: not everybody has all

Progress = Callable[[int, int], None]
Read = TypeVar("Read")
logger = logging.getLogger(__name__)


class Stock:
    """The shards of one offer, in the swarm's folder. See `OfferedText`.

    Attributes:
        shards: how many tokens each has.
        held_out: what nobody trains on.
    """

    def __init__(
        self,
        listed: ShardList,
        held_out: TokenIds,
        folder: SwarmFolder,
        manifest: Manifest,
        want: Callable[[Sequence[OfferedName]], None],
    ) -> None:
        """``want`` has files come into the ``folder``; others make room there."""
        self.shards: Sequence[int] = [shard.tokens for shard in listed.shards]
        self.held_out = Split([held_out])
        self._listed, self._folder, self._manifest, self._want = listed, folder, manifest, want
        self._warned = False
        self._numbers = {shard.digest: number for number, shard in enumerate(listed.shards)}

    @property
    def here(self) -> Sequence[int]:
        """See `OfferedText`."""
        return [self._numbers[name] for name in self._folder.offered.sizes if name in self._numbers]

    def read(self, shard: int) -> TokenIds | None:
        """See `OfferedText`."""
        return read_shard(self._listed.shards[shard], self._folder, self._manifest)

    def want(self, shards: Sequence[int]) -> None:
        """See `OfferedText`; fewer come where there is no room for all, the first of them at least.

        It takes the place of the one that is read, if need be: that one is in memory.
        """
        names = [_name_of(self._listed.shards[number], self._manifest) for number in shards]
        missing = [name for name in names if not (self._folder.offered.path / name.digest).exists()]
        keep = [name.digest for name in names]
        while missing:
            problem = self._folder.make_room_for_text(sum(name.most for name in missing), keep)
            if not problem:
                break
            if len(missing) == 1 and len(keep) > 1:
                keep = [missing[0].digest]
                continue
            keep.remove(missing.pop().digest)
            self._warn(problem)
        self._want(missing)

    def _warn(self, problem: str) -> None:
        """Once: it stays so."""
        if not self._warned:
            logger.warning("less of the swarm's text comes at once than could: %s", problem)
        self._warned = True


def open_stock(swarm: Swarm, progress: Progress | None = None, *, to_train: bool = True) -> Stock:
    """Fetch the list and what is held out, and to train a first shard, unless they are here.

    Args:
        swarm: an open membership; it offers text.
        progress: called again and again with how many of the files that it takes to begin are here, and how
            many these are.
        to_train: False: only what is held out is needed.

    Raises:
        UsageError: there is no offer.
        CorpusError: what the organiser has written is unusable, or there is no room for it.
        NodeError: nobody gave it.
    """
    manifest, folder = swarm.manifest, swarm.folder
    if not manifest.offer:
        raise UsageError("this swarm offers no text; give your own", setting="corpus")
    arriving = _Arriving(swarm, 3 if to_train else 2, progress or (lambda *_: None))
    list_name = OfferedName(manifest.offer.digest, LIST_BYTES_MAX)
    listed = ShardList.read(arriving.wait([list_name], lambda name: _read_checked(name.digest, folder)))
    held_out = arriving.wait(
        [_name_of(listed.held_out, manifest)], lambda _: read_shard(listed.held_out, folder, manifest)
    )
    folder.offered.pinned = frozenset((manifest.offer.digest, listed.held_out.digest))
    if not _has_a_block(held_out, manifest):
        raise CorpusError(
            "what this swarm's organiser holds out is unusable; train on a text of your own, and tell them",
            setting="corpus",
        )
    stock = Stock(listed, held_out, folder, manifest, swarm.want_offered)
    if to_train:
        order = shard_order(len(listed.shards), manifest.seed, swarm.peer_id, 0)
        first = [listed.shards[number] for number in dict.fromkeys([*stock.here, *order[:TRIED]])]
        named = {_name_of(shard, manifest): shard for shard in first}
        arriving.wait([*named], lambda name: _read_usable(named[name], folder, manifest))
        stock.want(order[:AHEAD])
    return stock


def read_shard(shard: Shard, folder: SwarmFolder, manifest: Manifest) -> TokenIds | None:
    """The tokens of a shard; none, if the organiser made it wrong. None: it is not here, or was damaged."""
    data = _read_checked(shard.digest, folder)
    if data is None:
        return None
    vocabulary_size = manifest.tokenizer.vocabulary_size
    dtype = np.dtype(token_type(vocabulary_size))
    if len(data) != bytes_of(shard, manifest):
        logger.warning("shard %s has another length than the list says: it is left out", shard.digest)
        return np.empty(0, dtype)
    tokens: TokenIds = np.frombuffer(data, dtype)
    if int(tokens.max()) >= vocabulary_size:
        logger.warning("shard %s has ids that the tokenizer does not have: it is left out", shard.digest)
        return np.empty(0, dtype)
    return tokens


def _read_checked(digest: str, folder: SwarmFolder) -> bytes | None:
    """A file of the offer; one that was damaged on the disk is removed, to be fetched again."""
    data = folder.offered.read(digest)
    if data is None or offered_blob(data).digest == digest:
        return data
    logger.warning("%s is damaged; it is fetched again", folder.offered.path / digest)
    folder.offered.remove(digest)
    return None


def _has_a_block(tokens: TokenIds, manifest: Manifest) -> bool:
    return len(tokens) > manifest.model.context_length


def _read_usable(shard: Shard, folder: SwarmFolder, manifest: Manifest) -> TokenIds | None:
    """See `read_shard`; None also if it was made wrong."""
    tokens = read_shard(shard, folder, manifest)
    return tokens if tokens is not None and _has_a_block(tokens, manifest) else None


def _name_of(shard: Shard, manifest: Manifest) -> OfferedName:
    return OfferedName(shard.digest, bytes_of(shard, manifest))


class _Arriving:
    """Files that it takes to begin, one after the other."""

    def __init__(self, swarm: Swarm, total: int, progress: Progress) -> None:
        self._swarm, self._total, self._progress = swarm, total, progress
        self._came: list[str] = []
        self._reason = "nobody who has it was found"
        swarm.listen(self._hear)

    def wait(self, names: Sequence[OfferedName], read: Callable[[OfferedName], Read | None]) -> Read:
        """What ``read`` returns of the first of these files that is here; those named first come first.

        It returns None of what is not here, or of no use.

        Raises:
            CorpusError: there is no room for it.
            NodeError: nobody gave it.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        found = self._read_any(names, read)
        if found is None:
            self._make_room(names)
            self._swarm.want_offered(names)
        while found is None:
            if time.monotonic() > deadline:
                raise NodeError(
                    f"the text that the swarm offers could not be fetched ({self._reason}); try again, or "
                    "train on a text of your own"
                )
            self._progress(len(self._came), self._total)
            time.sleep(LOOK_SECONDS)
            found = self._read_any(names, read)
        self._progress(len(self._came), self._total)
        return found

    def _make_room(self, names: Sequence[OfferedName]) -> None:
        """For one of them; the list is short, and nothing says how short before it is here."""
        size = max(name.most for name in names) if self._came else 0
        if problem := self._swarm.folder.make_room_for_text(size, self._came):
            raise CorpusError(
                f"there is no room for the text that the swarm offers: {problem}", setting="max_disk"
            )

    def _read_any(
        self, names: Sequence[OfferedName], read: Callable[[OfferedName], Read | None]
    ) -> Read | None:
        for name in names:
            if (found := read(name)) is not None:
                self._came.append(name.digest)
                return found
        return None

    def _hear(self, event: object) -> None:
        """In a thread of the node's."""
        if isinstance(event, OfferedMissing):
            self._reason = event.reason
