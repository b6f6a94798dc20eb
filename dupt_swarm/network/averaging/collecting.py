"""Fetching the contributions of a group: from whoever has them, the rarest first.

Each is measured as soon as it is here, while others are still on their way.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Sequence

from hivemind.p2p import PeerID

from dupt_swarm.errors import NodeError
from dupt_swarm.network.averaging.session import Session
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.blob import Assembly, Blob
from dupt_swarm.replica.contribution import Form, Measure, measure

AT_ONCE = 3
RETRY_SECONDS = 0.25
FETCH_SECONDS = 600.0  # the round ends long before

SHELF_ROUNDS = 2  # a member that is late may still ask for those of the round before

logger = logging.getLogger(__name__)


class RoundShelf:
    """The contributions of the last rounds, by digest: what the members of a group give one another."""

    def __init__(self) -> None:
        self._rounds: deque[dict[str, Blob]] = deque(maxlen=SHELF_ROUNDS)

    def begin(self, blob: Blob) -> None:
        """Begin a round with our own contribution."""
        self._rounds.appendleft({blob.digest: blob})

    def add(self, blob: Blob) -> None:
        """Another one of this round has arrived."""
        self._rounds[0][blob.digest] = blob

    def get(self, digest: str) -> Blob | None:
        """The blob, if it is here."""
        return next((blobs[digest] for blobs in self._rounds if digest in blobs), None)

    @property
    def blobs(self) -> list[Blob]:
        """All of them."""
        return [blob for blobs in self._rounds for blob in blobs.values()]


class Collection:
    """What one member fetches in one round."""

    def __init__(self, session: Session, form: Form, blobs: Exchange, shelf: RoundShelf) -> None:
        """What arrives is put on the ``shelf``, from which ``blobs`` serves it to others."""
        self._session, self._form, self._blobs, self._shelf = session, form, blobs, shelf
        self._under_way: set[int] = set()
        self._hopeless: set[int] = set()
        self._failures: Counter[int] = Counter()
        self._arrived = asyncio.Event()
        self._measuring: dict[int, asyncio.Task[Measure]] = {}
        self._hold(session.agreement.me)

    async def run(self) -> None:
        """Fetch everything that there is, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._fetch_forever())

    async def complete(self, places: Sequence[int]) -> list[Measure]:
        """Wait until the contributions of ``places`` are here, and measured."""
        while not set(places) <= self._session.agreement.held:
            self._arrived.clear()
            await self._arrived.wait()
        return await asyncio.gather(*(self._measuring[place] for place in places))

    async def _fetch_forever(self) -> None:
        while True:
            place = self._rarest()
            if place is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._under_way.add(place)
            try:
                await self._fetch(place)
                continue
            except ValueError as error:
                # It has another form than its maker has signed for, so no honest member will hold it.
                logger.warning("a contribution is unusable: %s", error)
                self._hopeless.add(place)
            except NodeError as error:  # the next time there may be other donors
                self._failures[place] += 1
                logger.debug("a contribution could not be fetched: %r", error)
            finally:
                self._under_way.discard(place)
            await asyncio.sleep(RETRY_SECONDS)

    def _rarest(self) -> int | None:
        """The place of a contribution to fetch now: one that few members hold, so that they soon are more.

        Those of voters come first, and what could not be had last: who has nothing delays nobody else.
        """
        agreement = self._session.agreement
        wanted = set(range(agreement.size)) - agreement.held - self._under_way - self._hopeless
        if agreement.decision is not None:
            wanted &= set(agreement.decision.choice)

        def key(place: int) -> tuple[bool, int, bool, int, float]:
            stranger, proposed = place not in agreement.electors, place in (agreement.proposal or ())
            return (
                *(stranger, self._failures[place], not proposed),
                *(len(agreement.holders[place]), random.random()),
            )

        return min(wanted, key=key, default=None)

    async def _fetch(self, place: int) -> None:
        statement = self._session.group.statements[place]
        index = await self._blobs.fetch_index(statement.digest, await self._donors(place))
        self._form.check(index, statement.claim)
        blob = await self._blobs.fetch(Assembly(index), lambda: self._donors(place), FETCH_SECONDS)
        self._shelf.add(blob)
        self._hold(place)

    def _hold(self, place: int) -> None:
        blob = self._shelf.get(self._session.group.digests[place])
        assert blob is not None
        self._measuring[place] = asyncio.create_task(asyncio.to_thread(measure, blob, self._form))
        self._session.hold(place)
        self._arrived.set()

    async def _donors(self, place: int) -> list[PeerID]:
        agreement, members = self._session.agreement, self._session.group.members
        places = {place, *agreement.holders[place]} - {agreement.me}
        return [PeerID.from_base58(members[each]) for each in sorted(places)]
