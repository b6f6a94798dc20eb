"""The exchange `share`: everybody gets all contributions, and computes the average itself.

Contributions are blobs. Each member publishes its own, and fetches the others' from whoever has them, the
rarest first; the rest is arithmetic (`replica.replay`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, OrderedDict

import numpy as np

from dupt_swarm.errors import NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.rounds.exchange import Averaged, Floor
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.task_group import TaskGroup
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.replica.codec import check_size
from dupt_swarm.replica.contribution import Claim, Measure, measure
from dupt_swarm.replica.link import Brought, Choice
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.replay import Measured, average_of_shared, contribution_form

MEMBERS_AT_ONCE, ANY_AT_ONCE = 3, 2  # strangers may be slow on purpose
RETRY_SECONDS = 0.25
IDLE_SECONDS = 2.0  # whatever there is to fetch wakes who waits for it
FETCH_SECONDS = 600.0  # the round ends long before

SHELF_ROUNDS = 2  # a member that is late may still ask for those of the round before

logger = logging.getLogger(__name__)


class RoundShelf:
    """The contributions of the last rounds, by digest: what the members give one another."""

    def __init__(self) -> None:
        self._rounds: OrderedDict[str, dict[str, Blob]] = OrderedDict()

    def add(self, state: str, blob: Blob) -> None:
        """One that started from ``state`` is here."""
        self._rounds.setdefault(state, {})[blob.digest] = blob
        while len(self._rounds) > SHELF_ROUNDS:
            self._rounds.popitem(last=False)

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is here."""
        return next((blobs[digest] for blobs in self._rounds.values() if digest in blobs), None)

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        return [blob for blobs in self._rounds.values() for blob in blobs.values()]


class Share:
    """See `RoundExchange`."""

    lasting = True

    def __init__(self, manifest: Manifest, numel: int, blobs: Exchange) -> None:
        """``blobs`` serves and fetches them; vectors have ``numel`` values."""
        self._manifest, self._blobs = manifest, blobs
        self._form = contribution_form(manifest, numel)
        self._shelf = RoundShelf()
        self._measures: OrderedDict[str, asyncio.Task[Measure]] = OrderedDict()

    async def open(self) -> None:
        """See `RoundExchange`."""
        self._blobs.serve_from(self._shelf)

    async def prepare(self, contribution: bytes | memoryview, claim: Claim) -> Brought:
        """See `RoundExchange`."""
        check_size(self._form.codec, contribution, self._form.numel)

        def build() -> Blob:
            # A copy: the trainer writes the next one where this one is. (NumPy's lets the event loop run.)
            return self._form.build(claim, np.frombuffer(contribution, np.uint8).copy().data)

        blob = await asyncio.to_thread(build)
        self._shelf.add(claim.state, blob)
        self._measuring(blob)
        return Brought(claim.maker, blob.digest, claim.tokens)

    async def run(self, floor: Floor) -> None:
        """See `RoundExchange`."""
        fetching = _Fetching(floor)
        async with TaskGroup() as tasks:
            for place in range(MEMBERS_AT_ONCE + ANY_AT_ONCE):
                tasks.create_task(self._fetch_forever(fetching, members=place < MEMBERS_AT_ONCE))

    async def average(self, following: NextState, choice: Choice) -> Averaged:
        """See `RoundExchange`."""
        blobs = {each.digest: self._held(each.digest) for each in choice.brought}
        measuring = [asyncio.shield(self._measuring(each)) for each in blobs.values()]
        measures = await asyncio.gather(*measuring)
        contributions = [
            Measured(each, blobs[each.digest], found)
            for each, found in zip(choice.brought, measures, strict=True)
        ]
        counted = await asyncio.to_thread(
            average_of_shared, self._manifest, following.before, contributions, self._form, following.take
        )
        return Averaged(counted.tokens, counted.makers, blobs, counted.rejected)

    def _held(self, digest: str) -> Blob:
        blob = self._shelf.get(digest)
        assert blob is not None
        return blob

    def _measuring(self, blob: Blob) -> asyncio.Task[Measure]:
        """Each is measured once, as soon as it is here, while others are still on their way."""
        if blob.digest not in self._measures:
            task = asyncio.create_task(asyncio.to_thread(measure, blob, self._form))
            self._measures[blob.digest] = task
            kept = {each.digest for each in self._shelf.blobs}
            for digest in [each for each in self._measures if each not in kept]:
                del self._measures[digest]
        return self._measures[blob.digest]

    async def _fetch_forever(self, fetching: _Fetching, *, members: bool) -> None:
        """Fetch one contribution after the other; what nobody gives now is tried again."""
        while True:
            brought = fetching.rarest(members=members)
            if brought is None:
                await fetching.floor.change(IDLE_SECONDS)
                continue
            fetching.under_way.add(brought.digest)
            try:
                await self._fetch(brought, fetching.floor)
                continue
            except ValueError as error:
                # It has another form than its maker has signed for, so no honest member will hold it.
                logger.warning("a contribution is unusable: %s", error)
                fetching.hopeless.add(brought.digest)
            except NodeError as error:  # the next time there may be other donors
                fetching.failures[brought.digest] += 1
                logger.debug("a contribution could not be fetched: %r", error)
            finally:
                fetching.under_way.discard(brought.digest)
            await asyncio.sleep(RETRY_SECONDS)

    async def _fetch(self, brought: Brought, floor: Floor) -> None:
        """Fetch a contribution unless it is here, and say so."""
        blob = self._shelf.get(brought.digest)
        if blob is None:
            before = floor.before
            index = await self._blobs.fetch_index(brought.digest, floor.donors(brought))
            self._form.check(index, Claim(before.round, before.digest, brought.tokens, brought.maker))

            async def donors() -> list[str]:
                return floor.donors(brought)

            blob = await self._blobs.fetch(Assembly(index), donors, FETCH_SECONDS)
            self._shelf.add(before.digest, blob)
        self._measuring(blob)
        floor.hold([brought.digest])


class _Fetching:
    """What one member fetches in one round."""

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.under_way: set[str] = set()
        self.hopeless: set[str] = set()
        self.failures: Counter[str] = Counter()

    def rarest(self, *, members: bool) -> Brought | None:
        """A contribution to fetch now: one that few members hold, so that they soon are more.

        Those of the electorate come first, and what could not be had last: it delays nobody else.
        ``members``: no others, unless there is no electorate.
        """
        busy, electorate = self.under_way | self.hopeless, self.floor.before.electorate
        wanted = [each for each in self.floor.wanted if each.digest not in busy]
        if members and electorate.members:
            wanted = [each for each in wanted if each.maker in electorate]

        def key(brought: Brought) -> tuple[bool, int, int, float]:
            stranger = brought.maker not in electorate
            held = len(self.floor.donors(brought))
            return stranger, self.failures[brought.digest], held, random.random()

        return min(wanted, key=key, default=None)
