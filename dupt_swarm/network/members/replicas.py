"""The nodes that keep all peers' records: a record is stored at each, and all are read from one at a time.

hivemind's own `get` and `store` ask every node near a key, and each answers with all that is under it: for
one key and every second, most of what an idle peer sends. So this remembers who is near the key, which each
answer tells, and what has been read, of which each answer has the newest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.dht.validation import DHTRecord
from hivemind.p2p import PeerID

from dupt_swarm.network.members.known import KnownRecords
from dupt_swarm.network.p2p.dht_messages import Row

# So often all are read, as one that is new may not have been told everything.
READ_ALL_SECONDS = 30.0
AVOID_SECONDS = 5.0  # one that did not answer
# Of those that one hears of; who does not answer takes nobody's place, and who tells of many wins little.
STRANGERS_AT_ONCE = 2
ASKED_MAX = 20


class Replicas:
    """What the DHT keeps under the subkeys of one key."""

    def __init__(self, node: DHTNode, name: str, is_mate: Callable[[bytes], bool] = lambda _: False) -> None:
        """``name`` is the key before it is hashed; for ``is_mate`` see `KnownRecords`."""
        self._node, self._key = node, DHTID.generate(source=name)
        self._known = KnownRecords(is_mate)
        self._own: bytes | None = None
        self._answered: dict[DHTID, PeerID] = {}
        self._heard: dict[DHTID, PeerID] = {}
        self._avoided: dict[DHTID, float] = {}
        self._all_read_at, self._turn = -READ_ALL_SECONDS, 0

    async def store(self, subkey: bytes, value: object, expires: float) -> None:
        """Sign ``value`` and store it until ``expires``, by the DHT's clock."""
        protocol = self._node.protocol
        record = self._record(subkey, protocol.serializer.dumps(value), expires)
        signed = protocol.record_validator.sign_value(record)
        if not protocol.record_validator.validate(replace(record, value=signed)):
            raise ValueError("nobody would accept this record")
        self._own = subkey
        self._known.take(subkey, signed, expires)
        others, here = self._nearest()
        if here:
            protocol.storage.store(self._key, signed, expires, subkey=subkey)
        entry = ([self._key], [signed], [expires], [subkey])
        answers = await asyncio.gather(*(protocol.call_store(peer, *entry) for peer in others.values()))
        self._avoid([place for place, answer in zip(others, answers, strict=True) if answer is None])

    async def read(self) -> dict[bytes, Any]:
        """The newest value of each subkey of which any replica has told so far, or this node keeps."""
        if time.monotonic() - self._all_read_at >= READ_ALL_SECONDS or not await self._read_one():
            await self._read_all()
        kept = self._node.protocol.storage.get(self._key)
        if kept is not None:
            self._take(kept.value)
        self._known.forget_expired()
        return {row.subkey: self._value(*row) for row in self.rows}

    @property
    def rows(self) -> list[Row]:
        """What this peer knows, as it was signed."""
        return [Row(*each) for each in self._known]

    @property
    def own(self) -> list[Row]:
        """What this peer has stored last itself, if that is anything."""
        return [row for row in self.rows if row.subkey == self._own]

    def merge(self, rows: Iterable[Row]) -> None:
        """Take what others say besides the DHT, after the same checks."""
        validator = self._node.protocol.record_validator
        for row in rows:
            if self._known.is_news(row.subkey, row.expires) and validator.validate(self._record(*row)):
                self._known.take(*row)

    async def _read_one(self) -> bool:
        """Ask one, each time another, and nodes that one hears of for the first time; whether it answered."""
        others = list(self._nearest()[0].items())
        self._turn += 1
        answered = bool(others) and await self._read_from(*others[self._turn % len(others)])
        await asyncio.gather(*(self._read_from(*stranger) for stranger in self._strangers()))
        return answered

    async def _read_all(self) -> None:
        """Ask whoever is near, and those of whom one hears meanwhile."""
        asked: set[DHTID] = set()
        while len(asked) < ASKED_MAX:
            near = [*self._nearest()[0].items(), *self._strangers()]
            new = [each for each in near if each[0] not in asked]
            if not any(await asyncio.gather(*(self._read_from(*each) for each in new))):
                break
            self._all_read_at = time.monotonic()
            asked |= {place for place, _ in new}

    async def _read_from(self, place: DHTID, peer: PeerID) -> bool:
        answer = await self._node.protocol.call_find(peer, [self._key])
        if not answer:
            self._avoid([place])
            return False
        found, self._heard = answer[self._key]
        self._answered[place] = peer
        nearest, _ = self._nearest()
        self._answered = {place: peer for place, peer in self._answered.items() if place in nearest}
        if found is not None:
            self._take(found.value)
        return True

    def _nearest(self) -> tuple[dict[DHTID, PeerID], bool]:
        """The other nodes that are to have everything, and whether this one is."""
        node = self._node
        known = node.protocol.routing_table.get_nearest_neighbors(
            self._key, node.protocol.bucket_size, exclude=node.node_id
        )
        # Who has answered at a place keeps it, and nobody has two.
        candidates = {**dict(known), **self._answered}
        usable = {place: peer for place, peer in candidates.items() if place not in self._avoided_now()}
        nearest: dict[PeerID, DHTID] = {}
        for place in self._sorted(usable or candidates):
            nearest.setdefault(candidates[place], place)
        here = set() if node.protocol.client_mode else {node.node_id}
        places = self._sorted({*nearest.values(), *here})[: node.num_replicas]
        return {place: candidates[place] for place in places if place != node.node_id}, node.node_id in places

    def _strangers(self) -> list[tuple[DHTID, PeerID]]:
        """Nodes of which the last answer told, that are nearer than some of the nearest."""
        nearest, here = self._nearest()
        known, avoided = {*nearest.values(), self._node.peer_id}, self._avoided_now()
        heard = {
            place: peer for place, peer in self._heard.items() if peer not in known and place not in avoided
        }
        own = {self._node.node_id} if here else set()
        places = self._sorted({*nearest, *heard, *own})[: self._node.num_replicas]
        return [(place, heard[place]) for place in places if place in heard][:STRANGERS_AT_ONCE]

    def _sorted(self, places: Iterable[DHTID]) -> list[DHTID]:
        return sorted(places, key=self._key.xor_distance)

    def _avoided_now(self) -> set[DHTID]:
        now = time.monotonic()
        return {place for place, until in self._avoided.items() if until > now}

    def _avoid(self, places: list[DHTID]) -> None:
        self._avoided = {place: self._avoided[place] for place in self._avoided_now()}
        self._avoided |= dict.fromkeys(places, time.monotonic() + AVOID_SECONDS)
        self._answered = {place: peer for place, peer in self._answered.items() if place not in places}

    def _take(self, values: object) -> None:
        if isinstance(values, DictionaryDHTValue):
            # (hivemind's own dictionaries drop a value when an older one is stored that expires.)
            for subkey, entry in values.items():
                self._known.take(subkey, *entry)

    def _value(self, subkey: bytes, signed: bytes, expires: float) -> Any:
        protocol = self._node.protocol
        unsigned = protocol.record_validator.strip_value(self._record(subkey, signed, expires))
        return protocol.serializer.loads(unsigned)

    def _record(self, subkey: bytes, value: bytes, expires: float) -> DHTRecord:
        """What hivemind's validators take: key and subkey as they travel."""
        return DHTRecord(self._key.to_bytes(), self._node.protocol.serializer.dumps(subkey), value, expires)
