"""What a stranger with plain hivemind can send to a node, and what does not come of it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgpack
import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P, P2PHandlerError
from hivemind.proto import averaging_pb2, dht_pb2

from dupt_swarm.network.p2p.rpc import ANSWERED, CallError, Raw, Refusal, rpc_stream
from dupt_swarm.network.rounds.reduce import Reduce
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange
from dupt_swarm.replica.blob import Blob
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


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(rounds={"matchmaking_seconds": 4, "chunk_seconds": 2, "allreduce_seconds": 15})


STORED = {
    "a value": (msgpack.packb(b"x"), msgpack.packb(True)),
    "nested extensions": (nested_extensions(), msgpack.packb(True)),
    "a value of nested extensions": (msgpack.packb(b"x"), nested_extensions()),
    "a dictionary": (DHTProtocol.IS_DICTIONARY, msgpack.packb(msgpack.ExtType(0x50, nested_extensions()))),
    "the beginning of a tag": (msgpack.packb(b"[owner:" * 18_800), msgpack.packb(True)),
    "the beginning of a signature": (msgpack.packb(b"[owner:x]"), b"[signature:" * 12_000),
}


@pytest.mark.parametrize("kind", STORED)
async def test_nothing_is_stored(stations, manifest, kind: str) -> None:
    """Whatever a stranger wants stored is refused before hivemind unpacks it, and the node lives."""
    subkey, value = STORED[kind]
    async with stations(2, manifest) as [peer, other], stranger_beside(peer.address) as p2p:
        with pytest.raises(P2PHandlerError, match=r"malformed|a message of"):
            await store_at(p2p, peer.address, "x", subkey, value)
        assert peer.p2p.refused.total() == 1
        protocol = peer.dht.protocol
        assert not protocol.storage.data and not protocol.cache.data
        assert await other.dht.protocol.call_ping(peer.p2p.peer_id) == peer.dht.node_id


async def test_what_others_find_is_not_believed(stations, manifest) -> None:
    """What a stranger says that it has found is not read; where its neighbours are, is."""
    async with stations(2, manifest) as [peer, other], stranger_beside(peer.address) as p2p:

        def find(request):
            value = msgpack.packb(msgpack.ExtType(0x50, nested_extensions()))
            result = dht_pb2.FindResult(
                type=dht_pb2.FOUND_DICTIONARY,
                value=value,
                expiration_time=float("inf"),
                nearest_node_ids=[other.dht.node_id.to_bytes()],
                nearest_peer_ids=[other.p2p.peer_id.to_bytes()],
            )
            return dht_pb2.FindResponse(results=[result] * len(request.keys))

        await answer_finds(p2p, find, peer.address)
        key = DHTID.generate()
        answer = await peer.dht.protocol.call_find(p2p.peer_id, [key])
        assert answer == {key: (None, {other.dht.node_id: other.p2p.peer_id})}
        assert peer.p2p.refused == {"form": 1}


async def test_a_place_beside_a_key(stations, manifest) -> None:
    """Who claims to stand where it wishes comes into no routing table; at its own, it does."""
    async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
        table = peer.dht.protocol.routing_table
        wished = DHTID.generate(source="a key")
        for place in (wished, place_of(p2p)):
            protocol = await DHTProtocol.create(p2p, place, 20, 5, 5, 3.0)
            await protocol.call_ping(peer_id_in(peer.address))
            await protocol.shutdown()
        while p2p.peer_id not in table:
            await asyncio.sleep(0.01)
        assert table.uid_to_peer_id == {place_of(p2p): p2p.peer_id}
        assert peer.p2p.refused == {"place": 1}


async def test_a_frame_that_is_announced_too_long(stations, manifest) -> None:
    """Who announces 2^40 bytes in a stream is hung up on, before anything is read."""
    async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
        exchange = Exchange(peer.p2p)
        await peer.p2p.serve(exchange)
        for marker in (P2P.MESSAGE_MARKER, P2P.ERROR_MARKER):
            _, reader, writer = await p2p.call_binary_stream_handler(
                peer_id_in(peer.address), "Exchange.rpc_chunks"
            )
            writer.write(marker + (1 << 40).to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER) + bytes(100))
            assert await reader.read() == b""
            writer.close()


async def test_an_answer_that_is_announced_too_long(stations, manifest) -> None:
    """A donor that announces more than a frame may have has failed, and nothing is read of it."""
    async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:

        async def announce(_info, reader, writer) -> None:
            length = Exchange.rpc_chunks.bounds.reply + len(ANSWERED) + 1
            writer.write(P2P.MESSAGE_MARKER + length.to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER))
            await reader.read()
            writer.close()

        await p2p.add_binary_stream_handler("Exchange.rpc_chunks", announce)
        wanted = ChunksMessage(digest=Blob.build({}, [b"x"]).digest, numbers=(0,))
        with pytest.raises(CallError, match="a message of 1,048,642 bytes") as error:
            async for _ in peer.p2p.stream(p2p.peer_id, Exchange.rpc_chunks, wanted):
                pass
        assert error.value.refusal is Refusal.TOO_LONG


async def test_a_stream_that_nobody_reads_to_its_end(stations, make_manifest) -> None:
    """Who sends more than is wanted gets its answer and is hung up on; no handler is left waiting."""
    manifest = make_manifest(**reduced_tables(rounds={"matchmaking_seconds": 4}))
    async with stations(1, manifest) as [peer], stranger_beside(peer.address) as p2p:
        await Reduce(manifest, NUMEL, peer.p2p).open()
        _, reader, writer = await p2p.call_binary_stream_handler(
            peer_id_in(peer.address), f"{manifest.swarm_id}::Reducers.rpc_aggregate_part"
        )
        for _ in range(20):  # the answer waits for a while, as the group might still be found
            await P2P.send_protobuf(averaging_pb2.AveragingData(group_id=b"unknown"), writer)
        answer, _ = await P2P.receive_protobuf(averaging_pb2.AveragingData, reader)
        assert answer.code == averaging_pb2.BAD_GROUP_ID
        assert await reader.read() == b""
        writer.close()


class Agreeing:
    """A service that has one reply."""

    @rpc_stream(Raw, longest=(100, 100))
    async def rpc_answer(self, _request: Raw, _caller: str) -> AsyncGenerator[bytes, None]:
        """The reply."""
        yield b"yes"


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.3], ids=["at once", "soon", "late"])
async def test_a_caller_that_says_late_that_it_sends_no_more(stations, manifest, pause: float) -> None:
    """It gets the replies all the same: the stream stays open for its last word."""
    calls = 20
    async with stations(2, manifest) as [peer, caller]:

        async def ask() -> bool:
            name = Agreeing.rpc_answer.name
            _, reader, writer = await caller.p2p.call_binary_stream_handler(peer.p2p.peer_id, name)
            await P2P.send_protobuf(BytesValue(value=b"?"), writer)
            await asyncio.sleep(pause)
            await P2P.send_protobuf(P2P.END_OF_STREAM, writer)
            await asyncio.sleep(pause)
            with contextlib.closing(writer):
                reply, _ = await P2P.receive_protobuf(BytesValue, reader)
            return reply.value == ANSWERED + b"yes"

        peer.p2p.limits.members = {str(caller.p2p.peer_id)}  # a stranger may not open so many
        await peer.p2p.serve(Agreeing())
        answered = await asyncio.gather(*(ask() for _ in range(calls)), return_exceptions=True)
        assert answered == calls * [True]
