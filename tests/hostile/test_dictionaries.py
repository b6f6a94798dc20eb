"""Dictionaries of the DHT in which one entry is bad: it is dropped alone."""

import asyncio
from typing import Any

import msgpack
import pytest
from hivemind.dht.protocol import DHTProtocol
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time

from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.validator import peers_key
from dupt_swarm.network.p2p.hivemind_dht import INVALID_MAX
from tests.support.signed_records import signed_record
from tests.support.stranger import answer_finds, nested_extensions, store_at, stranger_beside

TRUE = msgpack.packb(True)
SOME_ID = b"\x12\x20" + bytes(32)
BAD_ENTRIES: dict[str, Any] = {
    "another value": [SOME_ID, msgpack.packb(1), 5.0],
    "nested extensions": [SOME_ID, nested_extensions(), 5.0],
    "expires too late": [SOME_ID, TRUE, 1e9],
    "never expires": [SOME_ID, TRUE, float("inf")],
    "expires at no time": [SOME_ID, TRUE, "soon"],
    "a string": ["subkey", TRUE, 5.0],
    "a long subkey": [SOME_ID + bytes(2000), TRUE, 5.0],
    "a long value": [SOME_ID, bytes(5000), 5.0],
    "an extension": [msgpack.ExtType(5, b""), TRUE, 5.0],
    "two fields": [SOME_ID, TRUE],
    "no list": 1,
}


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def dictionary_of(entries: list[Any]) -> bytes:
    """As hivemind sends it."""
    return msgpack.packb(msgpack.ExtType(0x50, msgpack.packb([float("inf"), 9e9, entries])))


def from_now(entries: list[Any]) -> list[Any]:
    """The same with times that count from now."""
    now = get_dht_time()
    return [
        [*each[:2], now + each[2]] if isinstance(each, list) and isinstance(each[-1], float) else each
        for each in entries
    ]


@pytest.mark.parametrize("kind", BAD_ENTRIES)
def test_one_bad_entry_of_an_answer(stations, make_manifest, identities, keyed_stranger, kind: str) -> None:
    """The others are believed, and expire when they say themselves."""
    manifest = make_manifest()

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], keyed_stranger(peer.address) as p2p:
            rows = [signed_record(manifest, load_identity(path), 5.0) for path in identities]
            good = {tag for tag, _, _ in rows}

            def find(request):
                result = dht_pb2.FindResult(
                    type=dht_pb2.FOUND_DICTIONARY,
                    value=dictionary_of([*rows[:2], *from_now([BAD_ENTRIES[kind]]), *rows[2:]]),
                    expiration_time=get_dht_time() + 1e9,
                )
                return dht_pb2.FindResponse(results=[result] * len(request.keys))

            await answer_finds(p2p, find, peer.address)
            found = await peer.dht.get(peers_key(manifest.swarm_id), latest=True)
            assert set(found.value) == good
            assert found.expiration_time < get_dht_time() + 6
            refused = peer.p2p.refused + peer.dht.protocol.record_validator.refused
            assert refused.total() == 1

    run(scenario)


def test_bad_entries_without_end(stations, make_manifest, identities, keyed_stranger) -> None:
    """After 256 of them the rest of an answer is not looked at: to verify thousands would take long."""
    manifest = make_manifest()
    good, late = ([signed_record(manifest, load_identity(path))] for path in identities[:2])
    bad = [[b"\x12\x20" + number.to_bytes(32, "big"), msgpack.packb(1), 5.0] for number in range(4000)]

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], keyed_stranger(peer.address) as p2p:

            def find(request):
                entries = good + from_now(bad) + late
                result = dht_pb2.FindResult(type=dht_pb2.FOUND_DICTIONARY, value=dictionary_of(entries))
                return dht_pb2.FindResponse(results=[result] * len(request.keys))

            await answer_finds(p2p, find, peer.address)
            found = await peer.dht.get(peers_key(manifest.swarm_id), latest=True)
            assert list(found.value) == [good[0][0]]
            assert peer.dht.protocol.record_validator.refused == {"content": INVALID_MAX}

    run(scenario)


def test_one_bad_entry_of_what_is_to_be_stored(stations, make_manifest, identities) -> None:
    """The others are stored, also those after it; whoever stored them hears that not all were."""
    manifest = make_manifest()
    keys = [load_identity(path) for path in identities[1:]]

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
            first, forged, last = (signed_record(manifest, key) for key in keys)
            forged[1] = forged[1][:-10] + bytes(10)
            stored = await store_at(
                p2p,
                peer.address,
                peers_key(manifest.swarm_id),
                DHTProtocol.IS_DICTIONARY,
                dictionary_of([first, forged, [b"short"], last]),
            )
            assert stored == [False]
            view = await Membership(manifest, peer.dht, load_identity(identities[0])).refresh()
            assert len(view.peers) == 2
            assert peer.p2p.refused == {"form": 1}
            assert view.refused == {"signature": 1}

    run(scenario)
