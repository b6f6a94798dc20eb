"""What hivemind's DHT node does with what others tell and store, mended; see `hivemind_table`."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Collection
from typing import Any

from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.dht.validation import DHTRecord
from hivemind.p2p import PeerID
from hivemind.utils.timed_storage import TimedStorage, ValueWithExpiration

from dupt_swarm.network.p2p.dht_messages import ENTRIES_MAX

# Entries of one answer.
INVALID_MAX = 256
# Entries that were replaced and have not expired, beyond as many as there are others.
REPLACED_MAX = 64


def mend(node: DHTNode) -> None:
    """Whatever of this module there is, for a node that has just been made."""
    sieve_dictionaries(node)
    hand_over_nothing(node)
    forget_replaced(node)
    bound_dictionaries(node)


def sieve_dictionaries(node: DHTNode) -> None:
    """From now on what is not valid in a dictionary that others tell is dropped alone, and the rest believed.

    The dictionary expires with the last of what is left, whatever those say who told it. Nobody who is honest
    keeps what is not valid: after `INVALID_MAX` such entries no more are looked at, which takes time. Members
    come first, and no more are looked at than an honest node keeps.
    """
    protocol, limits = node.protocol, node.p2p.limits
    find = protocol.call_find

    def keep_valid(key: bytes, dictionary: DictionaryDHTValue) -> bool:
        invalid, valid = 0, {}
        for subkey, entry in sorted(dictionary.items(), key=lambda item: item[0] not in limits.subkeys):
            record = DHTRecord(key, protocol.serializer.dumps(subkey), *entry)
            if protocol.record_validator.validate(record):
                valid[subkey] = entry
                if len(valid) == ENTRIES_MAX:
                    break
            elif (invalid := invalid + 1) == INVALID_MAX:
                break
        dictionary.clear()
        dictionary.latest_expiration_time = -math.inf
        for subkey, entry in valid.items():
            dictionary.store(subkey, *entry)
        return bool(valid)

    async def call_find(peer: PeerID, keys: Collection[DHTID]) -> Any:
        answer = await find(peer, keys)
        return answer and {key: (expiring_with_last(found), near) for key, (found, near) in answer.items()}

    protocol._validate_dictionary, protocol.call_find = keep_valid, call_find


def hand_over_nothing(node: DHTNode) -> None:
    """From now on a node that is newly met gets no copy of what this one stores: records come again soon.

    Upstream sends it all that it is responsible for, in one message; with what a stranger stored that is too
    long for whoever is honest, and the sender, refused, drops it from its table and begins again.
    """
    protocol, table = node.protocol, node.protocol.routing_table
    pings: set[asyncio.Task[DHTID | None]] = set()

    async def update_routing_table(place: DHTID | None, peer: PeerID, responded: bool = True) -> None:
        place = place if place is not None else table.get(peer_id=peer)
        if place is None:
            return
        if not responded:
            if place in table:
                del table[place]
            return
        in_its_place = table.add_or_update_node(place, peer)
        if in_its_place is not None:  # the bucket is full, unless the one unheard of for longest is gone
            ping = asyncio.create_task(protocol.call_ping(in_its_place[1]))
            pings.add(ping)
            ping.add_done_callback(pings.discard)

    protocol.update_routing_table = update_routing_table


def expiring_with_last(found: Any) -> Any:
    """What was found, if it is a dictionary until its last entry expires."""
    if found is None or not isinstance(found.value, DictionaryDHTValue):
        return found
    return ValueWithExpiration(found.value, found.value.latest_expiration_time)


def forget_replaced(node: DHTNode) -> None:
    """From now on what is stored again takes the place of what it replaces.

    Upstream notes when each expires, and forgets none of that before: the same entry, stored again and again,
    takes more and more memory.
    """
    storage = node.protocol.storage
    store = storage.store_subkey

    def store_subkey(key: DHTID, subkey: Any, value: bytes, expires: float) -> bool:
        stored: bool = store(key, subkey, value, expires)
        found = storage.get(key)
        for kept in (storage, found and found.value):
            if isinstance(kept, TimedStorage):
                _tidy(kept)
        return stored

    storage.store_subkey = store_subkey


def bound_dictionaries(node: DHTNode) -> None:
    """From now on no dictionary that is kept here outgrows a message: nobody could be told anything of it.

    Members' entries come before those of others, and what is older before what is newer.
    """
    storage, limits, refused = node.protocol.storage, node.p2p.limits, node.p2p.refused
    store = storage.store_subkey

    def store_subkey(key: DHTID, subkey: Any, value: bytes, expires: float) -> bool:
        found = storage.get(key)
        kept = found.value if found is not None else None
        if isinstance(kept, DictionaryDHTValue) and subkey not in kept and len(kept) >= ENTRIES_MAX:
            refused["full"] += 1
            out = next((each for each in reversed(kept.data) if each not in limits.subkeys), None)
            if subkey not in limits.subkeys or out is None:
                return False
            del kept[out]
        return bool(store(key, subkey, value, expires))

    storage.store_subkey = store_subkey


def _tidy(kept: TimedStorage[Any, Any]) -> None:
    current = kept.key_to_heap.values()
    if len(kept.expiration_heap) > 2 * len(current) + REPLACED_MAX:
        kept.expiration_heap[:] = current
        heapq.heapify(kept.expiration_heap)
