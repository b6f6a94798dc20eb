"""The rounds so far, as this peer knows them: the chain of links, in memory and on disk."""

from __future__ import annotations

import logging
from collections.abc import Sequence
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

    def __init__(self, state: ReplicaState, words: Words, path: Path | None = None) -> None:
        """What is kept at ``path``, up to ``state``, or begun there; None: no file."""
        self._file = None if path is None else ChainFile(path, words)
        self._is_whole = False
        self._left: list[list[Link]] = []  # branches, the last one first
        self.chain = self._load(state) or Chain(state.digest, state.electorate)
        self._write()

    def begin(self, chain: Chain) -> None:
        """Here is a chain that leads to the same state, and begins earlier."""
        assert chain.head == self.chain.head
        self.chain = chain
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
        if lost or not self._is_whole:
            self._write()
        elif len(self.chain.links) > length and self._file is not None:
            try:
                self._file.append(self.chain.links[length:])
            except OSError as error:
                self._is_whole = False  # the last line may be torn
                logger.warning("%s is not kept: %s", self._file.path.name, error)
        return lost

    def left_up_to(self, state: str) -> list[Link]:
        """The links from our chain to ``state``, which is of a branch that was left.

        None, if it is a part of the chain, or of no branch that is known.
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
        if self._file is None or not self._file.path.exists():
            return None
        try:
            chain = self._file.load()
        except (OSError, ValueError) as error:
            logger.warning("the chain of rounds begins anew, as it is damaged: %s", error)
            return None
        if state.digest not in chain:
            return None
        chain.cut(state.digest)
        return chain

    def _write(self) -> None:
        if self._file is None:
            return
        try:
            self._file.write(self.chain)
            self._is_whole = True
        except FileError as error:
            logger.warning("the chain of rounds is not kept: %s", error)
