"""What a stranger with plain hivemind can send to a node, and what does not come of it."""

import asyncio
import contextlib

import msgpack
import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P
from hivemind.proto import averaging_pb2, dht_pb2
from hivemind.utils import get_dht_time

from dupt_swarm.network.members.validator import peers_key
from dupt_swarm.network.p2p.frames import RefusedError
from dupt_swarm.network.p2p.lengths import CHUNK_BYTES_MAX
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.replica.blob import Blob
from tests.support.averages import open_averaging
from tests.support.signed_records import publish
from tests.support.stranger import (
    answer_finds,
    nested_extensions,
    peer_id_in,
    place_of,
    store_at,
    stranger_beside,
)
from tests.support.tiny import reduced_tables

NUMEL = 1000


def dictionary_of(*fields) -> bytes:
    """What hivemind would take for a dictionary of the DHT, with these fields."""
    return msgpack.packb(msgpack.ExtType(0x50, msgpack.packb(fields)))


HOSTILE_DICTIONARIES = [
    nested_extensions(),
    msgpack.packb(msgpack.ExtType(0x50, nested_extensions())),
    dictionary_of("many", 1.0, {}),
    dictionary_of(9, 9e9, [["text", b"", 9e9]]),
    dictionary_of(9, 9e9, [[b"subkey", b"", float("nan")]]),
    dictionary_of(9, 9e9),
    b"",
]


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 4, "chunk_seconds": 2, "allreduce_seconds": 15})


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_nested_extension_types_in_a_subkey(stations, manifest) -> None:
    """A subkey or a value of nested extension types is refused under any key, and the node lives."""

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
            assert len(nested_extensions()) < 1024
            for key in (peers_key(manifest.swarm_id), "another key"):
                value, subkey = msgpack.packb(True), msgpack.packb(b"x")
                assert await store_at(p2p, peer.address, key, nested_extensions(), value) == [False]
                assert await store_at(p2p, peer.address, key, subkey, nested_extensions()) == [False]
            assert peer.p2p.refused == {"form": 2}
            assert peer.dht.protocol.record_validator.refused == {"content": 2}

    run(scenario)


def test_hostile_dictionaries_are_not_stored(stations, manifest) -> None:
    """A whole dictionary, which hivemind unpacks before it validates, is looked through first."""

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
            for dictionary in HOSTILE_DICTIONARIES:
                stored = await store_at(p2p, peer.address, "x", DHTProtocol.IS_DICTIONARY, dictionary)
                assert stored == [False]
            assert peer.p2p.refused == {"form": len(HOSTILE_DICTIONARIES)}

    run(scenario)


def test_hostile_answers_are_not_believed(stations, manifest, keyed_stranger) -> None:
    """Who asks the DHT, and gets such a dictionary from a stranger, hears what the others say."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers, keyed_stranger(peers[0].address) as p2p:
            mine, theirs = peers[0].dht, peers[1].dht
            asked: list[bytes] = []

            def find(request):
                asked.append(HOSTILE_DICTIONARIES[len(asked) % len(HOSTILE_DICTIONARIES)])
                result = dht_pb2.FindResult(
                    type=dht_pb2.FOUND_DICTIONARY, value=asked[-1], expiration_time=get_dht_time() + 100
                )
                return dht_pb2.FindResponse(results=[result] * len(request.keys))

            await answer_finds(p2p, find, peers[0].address)
            while len(asked) < len(HOSTILE_DICTIONARIES):
                tag = await publish(manifest, theirs, peers[1].key)
                assert list((await mine.get(peers_key(manifest.swarm_id), latest=True)).value) == [tag]
                mine.blacklist.clear()  # who sent nonsense is not asked for a while
                await mine.protocol.call_ping(p2p.peer_id)

    run(scenario)


def test_what_never_expires_is_not_believed(stations, manifest, keyed_stranger) -> None:
    """An answer that is said to be valid for ever is not kept: nobody else would be asked again."""

    async def scenario() -> None:
        async with stations(2, manifest) as peers, keyed_stranger(peers[0].address) as p2p:

            def find(request):
                value = dictionary_of(float("inf"), 9e9, [])
                result = dht_pb2.FindResult(
                    type=dht_pb2.FOUND_DICTIONARY, value=value, expiration_time=float("inf")
                )
                return dht_pb2.FindResponse(results=[result] * len(request.keys))

            await answer_finds(p2p, find, peers[0].address)
            mine, theirs = peers[0].dht, peers[1].dht
            await mine.get(peers_key(manifest.swarm_id), latest=True)
            tag = await publish(manifest, theirs, peers[1].key)
            assert list((await mine.get(peers_key(manifest.swarm_id), latest=True)).value) == [tag]

    run(scenario)


def test_a_place_beside_a_key(stations, manifest, keyed_stranger) -> None:
    """Who claims to stand where all records are kept comes into no routing table; at its own, it does."""

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], keyed_stranger(peer.address) as p2p:
            table = peer.dht.protocol.routing_table
            wished = DHTID.generate(source=peers_key(manifest.swarm_id))
            for place in (wished, place_of(p2p)):
                protocol = await DHTProtocol.create(p2p, place, 20, 5, 5, 3.0)
                await protocol.call_ping(peer_id_in(peer.address))
                await protocol.shutdown()
            while p2p.peer_id not in table:
                await asyncio.sleep(0.01)
            assert table.uid_to_peer_id == {place_of(p2p): p2p.peer_id}
            assert peer.p2p.refused == {"place": 1}

    run(scenario)


def test_lengths_come_before_regular_expressions(stations, manifest) -> None:
    """131 KB of the beginning of an owner tag, as a subkey or as a value, are refused by their length."""
    tags, signatures = b"[owner:" * 18_800, b"[signature:" * 12_000

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
            value, subkey = msgpack.packb(True), msgpack.packb(b"[owner:x]")
            assert await store_at(p2p, peer.address, "x", msgpack.packb(tags), value) == [False]
            assert await store_at(p2p, peer.address, "x", subkey, signatures) == [False]
            assert peer.p2p.refused == {"size": 2}

    run(scenario)


def test_a_frame_that_is_announced_too_long(stations, manifest) -> None:
    """Who announces 2^40 bytes in a stream is hung up on, before anything is read."""

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
            exchange = Exchange(peer.p2p)
            await exchange.start()
            for marker in (P2P.MESSAGE_MARKER, P2P.ERROR_MARKER):
                _, reader, writer = await p2p.call_binary_stream_handler(
                    peer_id_in(peer.address), "Exchange.rpc_chunks"
                )
                writer.write(marker + (1 << 40).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER) + bytes(100))
                assert await reader.read() == b""
                writer.close()

    run(scenario)


def test_an_answer_that_is_announced_too_long(stations, manifest) -> None:
    """A donor that announces more than a frame may have has failed, and nothing is read of it."""

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:

            async def announce(_info, reader, writer) -> None:
                length = CHUNK_BYTES_MAX + 1
                writer.write(P2P.MESSAGE_MARKER + length.to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER))
                await reader.read()
                writer.close()

            await p2p.add_binary_stream_handler("Exchange.rpc_chunks", announce)
            exchange = Exchange(peer.p2p)
            with pytest.raises(RefusedError, match="a message of 1,048,641 bytes"):
                async for _ in exchange._ask_chunks(p2p.peer_id, Blob.build({}, [b"x"]).digest, [0]):
                    pass

    run(scenario)


def test_a_stream_that_nobody_reads_to_its_end(stations, make_manifest) -> None:
    """Who sends more than is wanted gets its answer and is hung up on; no handler is left waiting."""
    manifest = make_manifest(**reduced_tables(rounds={"matchmaking_seconds": 4}))

    async def scenario() -> None:
        async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
            await open_averaging(manifest, peer, NUMEL)
            _, reader, writer = await p2p.call_binary_stream_handler(
                peer_id_in(peer.address), f"{manifest.swarm_id}::Reducers.rpc_aggregate_part"
            )
            for _ in range(20):  # the answer waits for a while, as the group might still be found
                await P2P.send_protobuf(averaging_pb2.AveragingData(group_id=b"unknown"), writer)
            answer, _ = await P2P.receive_protobuf(averaging_pb2.AveragingData, reader)
            assert answer.code == averaging_pb2.BAD_GROUP_ID
            assert await reader.read() == b""
            writer.close()

    run(scenario)


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.3], ids=["at once", "soon", "late"])
def test_a_caller_that_says_late_that_it_sends_no_more(stations, manifest, pause: float) -> None:
    """It gets the replies all the same: the stream stays open for its last word."""
    calls = 20

    async def scenario() -> None:
        async with stations(2, manifest) as [peer, caller]:

            async def answer(_request, _context):
                yield BytesValue(value=b"yes")

            async def ask() -> bool:
                _, reader, writer = await caller.p2p.call_binary_stream_handler(peer.p2p.peer_id, "answer")
                await P2P.send_protobuf(BytesValue(value=b"?"), writer)
                await asyncio.sleep(pause)
                await P2P.send_protobuf(P2P.END_OF_STREAM, writer)
                await asyncio.sleep(pause)
                with contextlib.closing(writer):
                    reply, _ = await P2P.receive_protobuf(BytesValue, reader)
                return reply.value == b"yes"

            peer.p2p.limits.members = {str(caller.p2p.peer_id)}  # a stranger may not open so many
            await peer.p2p.add_protobuf_handler("answer", answer, BytesValue, stream_output=True)
            answered = await asyncio.gather(*(ask() for _ in range(calls)), return_exceptions=True)
            assert answered == calls * [True]

    run(scenario)
