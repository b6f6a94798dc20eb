"""The rounds so far, as this peer knows them: the chain of links, in memory and on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dupt_swarm.errors import FileError
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState

LEFT_MAX = 4

logger = logging.getLogger(__name__)


class History:
    """The chain to the state that this peer is at.

    Attributes:
        chain: it.
    """

    def __init__(self, state: ReplicaState, words: Words, path: Path) -> None:
        """What is kept at ``path``, up to ``state``, or begun there."""
        self._file = ChainFile(path, words)
        # What the file had before a branch was left: whoever is started again may be at a state of that one.
        self._before = ChainFile(path.with_name(f"{path.name}.left"), words)
        self._is_whole = False
        self._left: list[list[Link]] = []  # branches, the last one first
        self._is_busy = False  # the file is being written, and what comes meanwhile follows
        self.chain = self._load(state) or Chain(state.digest, state.electorate)
        if not self._is_whole:  # months of rounds are hundreds of MB
            self._write()

    async def begin(self, past: Chain) -> None:
        """Here is a chain that leads to where ours begins, which goes on from it.

        Raises:
            ValueError: it leads elsewhere.
        """
        past.follow(self.chain.links)
        if past.head != self.chain.head:
            raise ValueError("a past that does not lead to our chain")
        self.chain = past
        kept = past.copied_from(past.first)
        self._is_busy, self._is_whole = True, False
        try:
            # Thousands of rounds take seconds.
            self._is_whole = await asyncio.to_thread(self._write_to_file, kept)
        finally:
            self._is_busy = False
        length = len(kept.links)
        if self._is_whole and self.chain.links[length - 1 : length] == kept.links[-1:]:
            self._append(self.chain.links[length:])
        else:
            self._write()

    def follow(self, links: Sequence[Link]) -> list[Link]:
        """See `Chain.follow`: what comes of it is kept.

        Raises:
            ValueError: they are not to be followed.
        """
        length = len(self.chain.links)
        lost = self.chain.follow(links)
        if lost:
            self._left = [lost, *self._left][:LEFT_MAX]
            with suppress(OSError):  # it is of use after a crash alone
                self._file.path.replace(self._before.path)
        if self._is_busy:
            return lost
        if lost or not self._is_whole:
            self._write()
        else:
            self._append(self.chain.links[length:])
        return lost

    def left_up_to(self, state: str) -> list[Link]:
        """The links from our chain to ``state``, which is of a branch that was left.

        None of them, if it is a part of the chain, or of no branch that is known.
        """
        found: list[Link] = []
        while state not in self.chain:
            branch = next((each for each in self._left if any(link.after == state for link in each)), None)
            if branch is None:
                return []
            place = next(place for place, link in enumerate(branch) if link.after == state)
            found, state = [*branch[: place + 1], *found], branch[0].state
        return found

    def from_state(self, state: str) -> Link | None:
        """See `Chain.from_state`."""
        return self.chain.from_state(state)

    def _load(self, state: ReplicaState) -> Chain | None:
        """The chain on disk up to ``state``, of the file that knows it; None: neither does."""
        for file in (self._file, self._before):
            if not file.path.exists():
                continue
            try:
                chain = file.load()
            except (OSError, ValueError) as error:
                logger.warning("the chain of rounds begins anew, as it is damaged: %s", error)
                continue
            if state.digest in chain:
                self._is_whole = file is self._file and not file.torn and chain.head == state.digest
                chain.cut(state.digest)
                return chain
        return None

    def _append(self, links: Sequence[Link]) -> None:
        if not links:
            return
        try:
            self._file.append(links)
        except OSError as error:
            self._is_whole = False  # the last line may be torn
            logger.warning("%s is not kept: %s", self._file.path.name, error)

    def _write(self) -> None:
        self._is_whole = self._write_to_file(self.chain)

    def _write_to_file(self, chain: Chain) -> bool:
        try:
            self._file.write(chain)
        except FileError as error:
            logger.warning("the chain of rounds is not kept: %s", error)
            return False
        return True
