"""Text that comes in shards, a few at a time: blocks of it, and what is held out.

Each oracle goes through all shards of an epoch in an order of its own, and through the blocks of a shard in
another one. Where the next shard is not here in time, those that are here are read again, the one read
longest ago first: training never waits for the network.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from dupt_swarm.errors import CheckpointError, CorpusError
from dupt_swarm.learning.epochs import shuffled
from dupt_swarm.learning.token_files import Split, TokenIds, blocks_in

AHEAD = 2  # shards that come while one is read: so the next one is here even if it takes twice as long
PATIENCE_SECONDS = 60.0

logger = logging.getLogger(__name__)


class OfferedText(Protocol):
    """All shards of a text, of which some are here."""

    @property
    def shards(self) -> Sequence[int]:
        """How many tokens each of them has."""

    @property
    def held_out(self) -> Split:
        """What nobody trains on, the same for all."""

    @property
    def here(self) -> Sequence[int]:
        """The numbers of the shards that are here, the one read longest ago first."""

    def read(self, shard: int) -> TokenIds | None:
        """Its tokens; none, if they are unusable. None: it is not here."""

    def want(self, shards: Sequence[int]) -> None:
        """Have these come, the first one first, and stay; others may go."""


class OfferedBlocks:
    """Blocks of such a text without end, resumable.

    Attributes:
        count: how many blocks an epoch has.
    """

    def __init__(
        self,
        text: OfferedText,
        context_length: int,
        seed: int,
        peer: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``seed`` and ``peer`` decide the orders; ``clock`` is for tests.

        Raises:
            CorpusError: no shard has as much as a block.
        """
        self.count = sum(blocks_in(tokens, context_length) for tokens in text.shards)
        if not self.count:
            raise CorpusError("what the swarm offers is shorter than a block; train on a text of your own")
        self._text, self._context_length, self._seed, self._peer = text, context_length, seed, peer
        self._epoch = self._position = 0  # of the shard that comes next
        self._shard, self._turn, self._dealt = -1, 0, 0  # of the one that is read: `turn` counts all of them
        self._clock, self._late_since = clock, math.inf
        self._split: Split | None = None
        self._order: Sequence[int] = ()

    def next(self) -> tuple[Split, int]:
        """The next block: its shard, and its number there.

        Raises:
            CorpusError: no shard is here.
        """
        if self._split is None or self._dealt >= len(self._order):
            self._open()
        assert self._split is not None
        self._dealt += 1
        return self._split, self._order[self._dealt - 1]

    def state_dict(self) -> dict[str, int]:
        """The position; serialisable as JSON."""
        return {
            "epoch": self._epoch,
            "position": self._position,
            "shard": self._shard,
            "turn": self._turn,
            "dealt": self._dealt,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after ``state``: with the same block, if its shard is still here.

        Raises:
            CheckpointError: ``state`` was not made by `state_dict`, or of another text.
        """
        values = [
            value for name in self.state_dict() if type(value := state.get(name)) is int and value >= -1
        ]
        if len(values) != len(self.state_dict()) or max(values[1:3]) >= len(self._text.shards):
            raise CheckpointError(f"not a position in shards: {state!r}; resume from another checkpoint")
        self._epoch, self._position, self._shard, self._turn, self._dealt = values
        self._split, self._order, self._late_since = None, (), math.inf
        if self._shard >= 0 and (tokens := self._text.read(self._shard)) is not None:
            self._use(self._shard, tokens)
        self._want()

    def _open(self) -> None:
        """Begin with another shard: the next one that has come, or else one that was read before."""
        self._turn, self._dealt = self._turn + 1, 0
        if not self._read_next() and not self._read_again():
            raise CorpusError("no text of the swarm's is here; join again where it can be fetched")
        self._want()

    def _read_next(self) -> bool:
        """Of those that were to come the first one that is here; False: there is none.

        Those before it, and one that is late by `PATIENCE_SECONDS`, have had their turn: nobody may have them
        any more. One that was made wrong has none.
        """
        ahead = wrong = 0
        while ahead < AHEAD and wrong < len(self._text.shards):
            shard = self._at(ahead)
            tokens = self._text.read(shard)
            if tokens is None:
                ahead += 1
                continue
            self._advance(ahead + 1)
            if self._use(shard, tokens):
                return True
            ahead, wrong = 0, wrong + 1
        self._late_since = min(self._late_since, self._clock())
        if self._clock() - self._late_since > PATIENCE_SECONDS:
            self._advance(1)
        return False

    def _advance(self, shards: int) -> None:
        epochs, self._position = divmod(self._position + shards, len(self._text.shards))
        self._epoch, self._late_since = self._epoch + epochs, math.inf

    def _read_again(self) -> bool:
        """Go through a shard that is here once more; False: there is none."""
        for shard in self._text.here:
            tokens = self._text.read(shard)
            if tokens is not None and self._use(shard, tokens):
                logger.info("the next shard is not here yet: shard %d is read again", shard)
                return True
        if self._split is not None:  # it was removed to make room, and is still in memory
            self._order = self._shuffle(len(self._order))
        return self._split is not None

    def _use(self, shard: int, tokens: TokenIds) -> bool:
        """Read this one from now on; False: there is no block in it."""
        blocks = blocks_in(len(tokens), self._context_length)
        if blocks:
            self._shard, self._split, self._order = shard, Split([tokens]), self._shuffle(blocks)
        return bool(blocks)

    def _shuffle(self, blocks: int) -> Sequence[int]:
        order: Sequence[int] = shuffled(blocks, self._seed, self._peer, self._turn).tolist()
        return order

    def _want(self) -> None:
        """The one that is read stays, for whoever resumes; those that follow come."""
        reading = [self._shard] if self._shard >= 0 else []
        ahead = [self._at(number) for number in range(AHEAD)]
        self._text.want(list(dict.fromkeys([*reading, *ahead])))

    def _at(self, ahead: int) -> int:
        """Which shard comes after so many others."""
        epoch, position = divmod(self._position + ahead, len(self._text.shards))
        return shard_order(len(self._text.shards), self._seed, self._peer, self._epoch + epoch)[position]


@lru_cache(maxsize=2)
def shard_order(count: int, seed: int, peer: str, epoch: int) -> Sequence[int]:
    """In which order ``peer`` reads the shards in an epoch."""
    return tuple(shuffled(count, seed, peer, epoch, 0).tolist())
