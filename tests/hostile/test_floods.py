"""A peer with plain hivemind that asks too much, or too slowly: the others are served all the same."""

import asyncio
import contextlib
import copy
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P, P2PHandlerError
from hivemind.proto import dht_pb2

from dupt_swarm.errors import NodeError
from dupt_swarm.network.host import background
from dupt_swarm.network.p2p import daemon, guard, limits
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.hivemind_internals import memory_of
from dupt_swarm.network.p2p.rpc import (
    BOUNDS,
    FRAME_BYTES_MAX,
    Bounds,
    CallError,
    Raw,
    Refusal,
    rpc,
)
from dupt_swarm.network.states import serving
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.serving import SLOTS, STRANGERS_RATIO
from dupt_swarm.replica.blob import Assembly, Blob
from tests.support.hello import hello
from tests.support.stranger import peer_id_in, stranger_beside

STREAMS = 200
GROWTH_BYTES_MAX = 64 << 20
BLOB, LARGE = Blob.build({}, [bytes(3000)]), Blob.build({}, [bytes(40 << 20)])
STRANGERS = int(STRANGERS_RATIO * SLOTS)  # that are served at once


async def served(peer) -> Exchange:
    """``peer`` gives a blob to those who ask."""
    exchange = Exchange(peer.p2p)
    exchange.publish(hello(), [BLOB])
    await peer.p2p.serve(exchange)
    return exchange


async def downloads(caller, peer, seconds: float = 20.0, blob: Blob = BLOB) -> bool:
    """Whether ``caller`` gets the blob from ``peer``."""

    async def donors():
        return [str(peer.p2p.peer_id)]

    exchange = Exchange(caller.p2p)
    index = await exchange.fetch_index(blob.digest, await donors())
    return (await exchange.fetch(Assembly(index), donors, seconds)).digest == blob.digest


async def serves_lookups(peer, caller) -> bool:
    """Whether ``peer`` tells ``caller`` of its neighbours in the DHT."""
    return bool(await caller.dht.protocol.call_find(peer.p2p.peer_id, [DHTID.generate()]))


def resident(peer) -> int:
    """Bytes of this process and of the daemon of ``peer``."""
    return psutil.Process().memory_info().rss + memory_of(peer.p2p)


@asynccontextmanager
async def idle_streams(p2p: P2P, address: str, handler: str, count: int) -> AsyncIterator[list[Any]]:
    """Streams on which nothing is sent, each as reader and writer."""

    async def open_one() -> tuple[Any, Any] | None:
        with contextlib.suppress(Exception):  # libp2p may refuse some itself
            _, reader, writer = await p2p.call_binary_stream_handler(peer_id_in(address), handler)
            return reader, writer
        return None

    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(count // 20):
            for stream in filter(None, await asyncio.gather(*(open_one() for _ in range(20)))):
                stack.enter_context(contextlib.closing(stream[1]))
                streams.append(stream)
        yield streams


async def test_a_flood_of_calls_by_one_peer(stations, make_manifest, monkeypatch) -> None:
    """What is too much is refused with an error that says so, and counted; others are served."""
    monkeypatch.setattr(
        limits, "STRANGER", dataclasses.replace(limits.STRANGER, calls=1.0, calls_at_once=100)
    )
    manifest = make_manifest()
    async with stations(2, manifest) as [peer, other], stranger_beside(peer.address) as p2p:
        peer.p2p.limits = limits.PeerLimits(peer.p2p.refused, lambda: 0.0)  # a clock that stands
        peer.p2p.limits.members = {str(other.p2p.peer_id)}
        stub = super(DHTProtocol, DHTProtocol).get_stub(p2p, peer_id_in(peer.address))
        request = dht_pb2.FindRequest(keys=[DHTID.generate().to_bytes()])
        calls = [
            await asyncio.gather(*map(stub.rpc_find, [request] * 10), return_exceptions=True)
            for _ in range(30)
        ]
        refused = [each for batch in calls for each in batch if isinstance(each, P2PHandlerError)]
        assert all("too many calls" in str(each) for each in refused)
        assert len(refused) == 300 - 100 // BOUNDS["DHTProtocol.rpc_find"].calls
        assert peer.p2p.refused == {"rate": len(refused)}
        assert await serves_lookups(peer, other)


async def test_keys_without_end_in_one_call(stations, make_manifest) -> None:
    """A request for the same key a thousand times is refused before anything is looked up."""
    async with stations(1, make_manifest()) as [peer], stranger_beside(peer.address) as p2p:
        stub = super(DHTProtocol, DHTProtocol).get_stub(p2p, peer_id_in(peer.address))
        with pytest.raises(P2PHandlerError, match=r"a message of 22,\d+ bytes"):
            await stub.rpc_find(dht_pb2.FindRequest(keys=[bytes(20)] * 1000))
        assert peer.p2p.refused == {"size": 1}


async def test_idle_streams_by_one_peer(stations, make_manifest, monkeypatch) -> None:
    """A few stay open until the first message is due, and all others are closed with an error at once."""
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 10.0)
    manifest = make_manifest()
    async with stations(2, manifest) as [peer, other], stranger_beside(peer.address) as p2p:
        await served(peer)
        before = resident(peer)
        async with idle_streams(p2p, peer.address, "Exchange.rpc_chunks", STREAMS) as streams:
            assert await downloads(other, peer)
            assert await serves_lookups(peer, other)
            ends = await asyncio.gather(*(reader.read() for reader, _ in streams))
        told = [end for end in ends if b"at once are open" in end]
        assert peer.p2p.refused["open"] >= len(told) > 0
        assert peer.p2p.refused["slow"] >= limits.STRANGER.open_streams
        assert resident(peer) - before < GROWTH_BYTES_MAX


async def test_refused_streams_that_are_reset(stations, monkeypatch) -> None:
    """Who hangs up before it hears that it is refused leaves no error behind."""
    monkeypatch.setattr(limits, "STRANGER", dataclasses.replace(limits.STRANGER, open_streams=0))
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with stations(1) as [peer], stranger_beside(peer.address) as p2p:
        await served(peer)
        for _ in range(10):
            streams = [
                p2p.call_binary_stream_handler(peer_id_in(peer.address), "Exchange.rpc_chunks")
                for _ in range(20)
            ]
            for opened in asyncio.as_completed(streams):
                _, _, writer = await opened
                writer.transport.abort()
        async with idle_streams(p2p, peer.address, "Exchange.rpc_chunks", 20) as streams:
            await asyncio.gather(*(reader.read() for reader, _ in streams))
        assert peer.p2p.refused["open"] >= 200
    assert errors == []


@pytest.mark.parametrize("sent", [b"", b"\x00", b"\x00" + (100).to_bytes(8, "big") + b"x", b"whole"])
async def test_a_request_that_never_ends(stations, monkeypatch, sent: bytes) -> None:
    """Who begins a stream and does not say in time that its request is over is hung up on."""
    monkeypatch.setattr(guard, "REQUEST_SECONDS", 0.5)
    async with stations(1) as [peer], stranger_beside(peer.address) as p2p:
        await served(peer)
        _, reader, writer = await p2p.call_binary_stream_handler(
            peer_id_in(peer.address), "Exchange.rpc_chunks"
        )
        if sent == b"whole":
            await P2P.send_protobuf(BytesValue(value=b"{}"), writer)
        else:
            writer.write(sent)
        assert await reader.read() == b""
        assert peer.p2p.refused == {"slow": 1}
        writer.close()


async def test_strangers_take_no_places_of_members(stations, monkeypatch) -> None:
    """When strangers together have all that is theirs, a member is served, and one more stranger is not."""
    monkeypatch.setattr(limits, "STRANGERS", dataclasses.replace(limits.STRANGERS, open_streams=2))
    async with (
        stations(2) as [peer, member],
        stranger_beside(peer.address) as first,
        stranger_beside(peer.address) as second,
    ):
        await connect(member.p2p, [peer.address])
        await served(peer)
        peer.p2p.limits.members = {str(member.p2p.peer_id)}
        async with (
            idle_streams(first, peer.address, "Exchange.rpc_chunks", 20),
            idle_streams(second, peer.address, "Exchange.rpc_chunks", 20),
        ):
            assert await downloads(member, peer)
            assert peer.p2p.refused["strangers"] > 0
            peer.p2p.limits.members = frozenset()
            with pytest.raises(NodeError, match="busy"):
                await downloads(member, peer, 1.0)


async def test_a_call_that_drips(stations, make_manifest) -> None:
    """Calls of which the bytes come one by one, and 4 MiB of each are announced, hold up nobody."""
    manifest = make_manifest()
    async with stations(2, manifest) as [peer, other], stranger_beside(peer.address) as p2p:
        before = resident(peer)
        async with idle_streams(p2p, peer.address, "DHTProtocol.rpc_find", 60) as streams:
            for _, writer in streams:
                writer.write(b"\xff\xff\xff\x01")  # the length of what follows, in libp2p's manner
            for _ in range(10):
                for _, writer in streams:
                    writer.write(b"\x0a")
                await asyncio.sleep(0.02)  # a drip has pauses
            assert await serves_lookups(peer, other)
            stub = super(DHTProtocol, DHTProtocol).get_stub(p2p, peer_id_in(peer.address))
            assert (await stub.rpc_ping(dht_pb2.PingRequest(), timeout=5)).dht_time > 0
            assert resident(peer) - before < 4 * GROWTH_BYTES_MAX


async def test_a_daemon_that_takes_all_memory(stations, monkeypatch) -> None:
    """It keeps calls that are not whole, of whoever opens them, and is given up in time."""
    monkeypatch.setattr(daemon, "PROBE_SECONDS", 0.05)
    async with stations(1) as [peer], stranger_beside(peer.address) as p2p:
        await peer.p2p.serve(Exchange(peer.p2p))
        monkeypatch.setattr(daemon, "MEMORY_BYTES_MAX", memory_of(peer.p2p) + (32 << 20))
        watching = asyncio.create_task(daemon.daemon_failure(peer.p2p))
        async with idle_streams(p2p, peer.address, "Exchange.rpc_hello", 60) as streams:
            assert not watching.done()
            for _, writer in streams:
                writer.write(b"\xff\xff\xff\x01" + bytes(1 << 20))
            assert "MiB" in await watching


class Thinking:
    """A service that never comes to an end."""

    @rpc(Raw, Raw, longest=(16, 256), seconds=0.2)
    async def rpc_think(self, request: Raw, _caller: str) -> Raw:
        """No answer."""
        await asyncio.Event().wait()
        return request


async def test_an_answer_that_takes_too_long(stations) -> None:
    """A call that a handler does not answer in time fails, and gives its place back."""
    async with stations(2) as [peer, other]:
        await connect(other.p2p, [peer.address])

        await peer.p2p.serve(Thinking())
        patient = copy.copy(Thinking.rpc_think)
        patient.bounds = dataclasses.replace(patient.bounds, seconds=10.0)
        for count in (1, 2):
            with pytest.raises(CallError, match="took too long") as error:
                await other.p2p.call(peer.peer_id, patient, Raw())
            assert error.value.refusal is Refusal.TOO_SLOW
            assert peer.p2p.refused == {"slow": count}


async def begin_download(p2p: P2P, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask for all of a large blob, and read nothing yet."""
    _, reader, writer = await p2p.call_binary_stream_handler(peer_id_in(address), "Exchange.rpc_chunks")
    request = {"digest": LARGE.digest, "numbers": list(range(40))}
    await P2P.send_protobuf(BytesValue(value=json.dumps(request).encode()), writer)
    await P2P.send_protobuf(P2P.END_OF_STREAM, writer)
    return reader, writer


@pytest.mark.system  # for its length
async def test_joiners_that_are_slow(stations, monkeypatch) -> None:
    """They take all slots of a donor, and again whenever they lose one: who else joins gets the state."""
    monkeypatch.setattr(serving, "TURN_SECONDS", 1.0)

    async def drip(address: str) -> None:
        async with stranger_beside(address) as p2p:
            while True:
                reader, writer = await begin_download(p2p, address)
                with contextlib.closing(writer):
                    while await reader.read(1000):
                        await asyncio.sleep(0.1)

    async with stations(2) as [peer, other]:
        exchange = await served(peer)
        exchange.publish(hello(), [BLOB, LARGE])
        async with contextlib.AsyncExitStack() as slow:
            for _ in range(SLOTS):
                await slow.enter_async_context(background(drip(peer.address)))
            while len(exchange._slots._streams) < STRANGERS:
                await asyncio.sleep(0.1)
            await connect(other.p2p, [peer.address])
            assert await downloads(other, peer, 60.0, LARGE)


async def test_a_download_that_drips(stations, monkeypatch) -> None:
    """Who reads each chunk just in time has its stream, and a slot, for so long and no longer."""
    bounds = dataclasses.replace(Exchange.rpc_chunks.bounds, seconds=1.5)
    monkeypatch.setitem(BOUNDS, Exchange.rpc_chunks.name, bounds)
    async with stations(1) as [peer], stranger_beside(peer.address) as p2p:
        exchange = await served(peer)
        exchange.publish(hello(), [BLOB, LARGE])
        reader, writer = await begin_download(p2p, peer.address)
        began = asyncio.get_running_loop().time()
        while exchange._slots._streams or not peer.p2p.refused:
            await reader.read(1000)  # a drip: each chunk would take 100 s, and be in time again and again
            await asyncio.sleep(0.1)
        assert 1.0 < asyncio.get_running_loop().time() - began < 15
        assert peer.p2p.refused == {"slow": 1}
        writer.close()


async def test_parts_of_a_contribution_that_drip(stations, monkeypatch) -> None:
    """A stream of many requests ends too, however regularly they come."""
    monkeypatch.setitem(BOUNDS, "X.rpc_drip", Bounds(FRAME_BYTES_MAX, FRAME_BYTES_MAX, seconds=1.0))
    async with stations(1) as [peer], stranger_beside(peer.address) as p2p:

        async def count(requests, _context):
            async for _ in requests:
                yield BytesValue(value=b"go on")

        await peer.p2p.add_protobuf_handler(
            "X.rpc_drip", count, BytesValue, stream_input=True, stream_output=True
        )
        _, reader, writer = await p2p.call_binary_stream_handler(peer_id_in(peer.address), "X.rpc_drip")
        replies = 0
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await P2P.send_protobuf(BytesValue(value=b"x"), writer)
                await P2P.receive_protobuf(BytesValue, reader)
                replies += 1
                await asyncio.sleep(0.05)
        assert 0 < replies < 40
        assert peer.p2p.refused == {"slow": 1}
        writer.close()
