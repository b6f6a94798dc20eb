"""What a DHT node does with what others store, against hivemind's manner."""

import asyncio

import msgpack
from hivemind.dht.routing import DHTID
from hivemind.utils import get_dht_time

from dupt_swarm.network.p2p import hivemind_dht
from dupt_swarm.network.p2p.hivemind_dht import REPLACED_MAX
from dupt_swarm.network.p2p.limits import STORED_MAX

TRUE = msgpack.packb(True)


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_more_than_may_be_stored_at_once(stations, make_manifest) -> None:
    """Of so much that it has a node hands nothing over, and keeps the neighbours that it has."""

    async def scenario() -> None:
        async with stations(2, make_manifest()) as [peer, other]:
            for _ in range(3 * STORED_MAX):
                assert peer.dht.protocol.storage.store_subkey(
                    DHTID.generate(), b"subkey", TRUE, get_dht_time() + 5
                )
            protocol, table = peer.dht.protocol, peer.dht.protocol.routing_table
            del table[table.get(peer_id=other.p2p.peer_id)]
            for _ in range(3):  # the first meets it anew
                assert await protocol.call_ping(other.p2p.peer_id) is not None
            assert table.get(peer_id=other.p2p.peer_id) is not None
            assert not other.p2p.refused
            assert len(other.dht.protocol.storage) == 0

    run(scenario)


def test_the_same_entry_again_and_again(stations, make_manifest) -> None:
    """It is kept once, and when it expires is remembered a few times at most."""

    async def scenario() -> None:
        async with stations(1, make_manifest()) as [peer]:
            storage, key, now = peer.dht.protocol.storage, DHTID.generate(), get_dht_time()
            for number in range(10 * REPLACED_MAX):
                assert storage.store_subkey(key, b"subkey", TRUE, now + 30 + number)
                assert not storage.store_subkey(key, b"subkey", TRUE, now + 20)
            [(_, found)] = storage.items()
            assert found.value.get(b"subkey").expiration_time == now + 29 + 10 * REPLACED_MAX
            for kept in (storage, found.value):
                assert len(kept.expiration_heap) <= REPLACED_MAX + 2

    run(scenario)


def test_who_gives_way_in_a_full_dictionary(stations, make_manifest, monkeypatch) -> None:
    """A member takes the place of the newest who is none; whoever was there before a flood stays."""
    monkeypatch.setattr(hivemind_dht, "ENTRIES_MAX", 3)

    async def scenario() -> None:
        async with stations(1, make_manifest()) as [peer]:
            storage, key, expires = peer.dht.protocol.storage, DHTID.generate(), get_dht_time() + 30
            peer.p2p.limits.admit([], [b"member"])
            stored = [
                storage.store_subkey(key, subkey, TRUE, expires)
                for subkey in (b"a", b"b", b"c", b"d", b"member")
            ]
            assert stored == [True, True, True, False, True]
            assert set(storage.get(key).value.data) == {b"a", b"b", b"member"}

    run(scenario)
