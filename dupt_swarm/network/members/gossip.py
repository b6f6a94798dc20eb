"""Records passed on directly between peers that know each other: whoever owns the DHT blinds nobody.

Records are signed, so anybody may pass them on.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import msgpack

from dupt_swarm.network.members.identity import is_owner_tag
from dupt_swarm.network.members.replicas import Replicas
from dupt_swarm.network.members.short_names import short_name
from dupt_swarm.network.p2p.dht_messages import ENTRIES_MAX, ENTRY_TYPES, VALUE_BYTES_MAX, Row
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.plain_msgpack import unpack
from dupt_swarm.network.p2p.rpc import rpc

GOSSIP_SECONDS = 4.0
ANSWER_SECONDS = 5.0
FIRST_SECONDS, MET_MAX = 1.0, 4  # at the start
# Others are told only what they know so much less freshly: the DHT tells it as well, and all the time.
STALE_SECONDS = 5.0
REPLY_BYTES = 1 << 16


@dataclass(frozen=True)
class Known:
    """What an asking peer tells: its own record, and until when those are valid that it knows."""

    own: tuple[Row, ...]
    ends: dict[bytes, float]

    def pack(self) -> bytes:
        """As it travels."""
        return bytes(msgpack.packb([self.own, list(self.ends.items())]))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read another peer's; nothing in it is checked but its form.

        Raises:
            ValueError: it is malformed.
        """
        own, ends = read_request(data)
        return cls(tuple(own), ends)


@dataclass(frozen=True)
class Told:
    """Records that the asking peer lacks; nothing in it is checked."""

    rows: tuple[Row, ...]
    malformed: int = 0

    def pack(self) -> bytes:
        """As it travels."""
        return bytes(msgpack.packb(self.rows))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read another peer's.

        Raises:
            ValueError: it is malformed.
        """
        rows, malformed = read_rows(unpack(data), most=ENTRIES_MAX)
        return cls(tuple(rows), malformed)


class Gossip:
    """Tells others the records that they lack, and asks one or two peers for what this one lacks.

    Of those asked one is a peer that was met, and one any of those that are known: invented peers are many.
    """

    def __init__(
        self,
        p2p: GuardedP2P,
        records: Replicas,
        met: Callable[[], Collection[str]],
        known: Callable[[], Collection[str]],
    ) -> None:
        """``met`` gives ids of peers that this one has dealt with, ``known`` of all."""
        self._p2p, self._records, self._met, self._known = p2p, records, met, known

    async def start(self) -> None:
        """Begin to answer other peers."""
        await self._p2p.serve(self)

    # Members ask once or twice in four seconds.
    @rpc(Known, Told, longest=(32_000, REPLY_BYTES), seconds=ANSWER_SECONDS, calls=50)
    async def rpc_records(self, request: Known, caller: str) -> Told:
        """Take the caller's own record, and give those that it does not know or knows from long ago."""
        del caller
        self._records.merge(request.own)
        return Told(tuple(_fitting(self._news_to(request.ends))))

    async def begin(self) -> None:
        """Ask those that were met already, but for a moment only: then this peer knows whom they know."""
        asking = [asyncio.create_task(self.ask(peer_id)) for peer_id in self._met_others()[:MET_MAX]]
        if asking:
            _, late = await asyncio.wait(asking, timeout=FIRST_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def ask_forever(self) -> None:
        """Ask regularly."""
        await ask_regularly(self.partners, self.ask)

    async def partners(self) -> set[str]:
        """Whom to ask now; of those only known one that is connected, as libp2p would dial anybody.

        Of those met one that is connected too, if any is: most of them may be gone.
        """
        connected = {str(peer.peer_id) for peer in await self._p2p.list_peers()}
        met = self._met_others()
        choices = (
            [peer_id for peer_id in met if peer_id in connected] or met,
            sorted(connected.intersection(self._known())),
        )
        return {random.choice(choice) for choice in choices if choice}

    def _met_others(self) -> list[str]:
        return [peer_id for peer_id in dict.fromkeys(self._met()) if peer_id != str(self._p2p.peer_id)]

    async def ask(self, peer_id: str) -> None:
        """Tell ``peer_id`` our own record, and take what it tells.

        Raises:
            CallError: it does not answer, or with nonsense.
        """
        ends = {short_name(row.subkey): row.expires for row in self._records.rows}
        request = Known(tuple(self._records.own), ends)
        told = await self._p2p.call(peer_id, Gossip.rpc_records, request)
        self._p2p.refused.update(+Counter(form=told.malformed))
        self._records.merge(told.rows)

    def _news_to(self, told: dict[bytes, float]) -> Iterator[Row]:
        rows = self._records.rows
        random.shuffle(rows)  # whoever lacks more than fits in here is told the rest by others
        return (row for row in rows if row.expires > told.get(short_name(row.subkey), 0.0) + STALE_SECONDS)


async def ask_regularly(
    partners: Callable[[], Awaitable[Collection[str]]], ask: Callable[[str], Awaitable[None]]
) -> None:
    """Every few seconds let ``ask`` ask those whom ``partners`` names then; whoever fails does so alone."""
    while True:
        await asyncio.sleep(GOSSIP_SECONDS * random.uniform(0.5, 1.5))
        with suppress(Exception):  # p2pd may be about to be replaced
            await asyncio.gather(*map(ask, await partners()), return_exceptions=True)


def _fitting(rows: Iterable[Row]) -> Iterator[Row]:
    """As many of ``rows`` as an answer has room for; no more are looked for."""
    room = REPLY_BYTES - 64
    for row in rows:
        room -= len(row.subkey) + len(row.value) + 32
        if room < 0:
            return
        yield row


def read_request(data: bytes) -> tuple[list[Row], dict[bytes, float]]:
    """Of a request for records the caller's own, and the ends of those that it knows by the tags' hashes.

    Raises:
        ValueError: it is malformed.
    """
    tree = unpack(data)
    if not isinstance(tree, list) or len(tree) != 2 or not isinstance(tree[1], list):
        raise ValueError("not a request for records")
    told = tree[1][:ENTRIES_MAX]
    if not all(isinstance(each, list) and list(map(type, each)) == [bytes, float] for each in told):
        raise ValueError("not a list of known records")
    own, malformed = read_rows(tree[0], most=1)
    if malformed:
        raise ValueError("a malformed record of one's own")
    return own, dict(told)


def read_rows(tree: object, most: int) -> tuple[list[Row], int]:
    """Records as another peer told them, still to be checked, and how many more that are malformed.

    Raises:
        ValueError: it is no list, or they are too many.
    """
    if not isinstance(tree, list) or len(tree) > most:
        raise ValueError("not a list of records")
    rows = [Row(*each) for each in tree if _is_row(each)]
    return rows, len(tree) - len(rows)


def _is_row(each: Any) -> bool:
    """Whether it has the form of a record, of somebody, that is not too long."""
    formed = isinstance(each, list) and list(map(type, each)) == ENTRY_TYPES
    return formed and is_owner_tag(each[0]) and len(each[1]) <= VALUE_BYTES_MAX
