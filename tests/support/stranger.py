"""A peer that can dial and holds no key of the swarm: plain hivemind, with none of our code in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.p2p import P2P, PeerID
from hivemind.proto import dht_pb2
from hivemind.utils import get_dht_time

TUPLE_CODE = 0x40  # hivemind's extension type for tuples


def nested_extensions(depth: int = 200) -> bytes:
    """Extension types within extension types: under 1 KB, and too deep for the stack of hivemind's reader."""
    data = msgpack.packb(None)
    for _ in range(depth):
        data = msgpack.packb(msgpack.ExtType(TUPLE_CODE, data))
    return data


def peer_id_in(address: str) -> PeerID:
    return PeerID.from_base58(address.rpartition("/")[2])


@asynccontextmanager
async def stranger_beside(
    *addresses: str, identity: Path | None = None, kind: type[P2P] = P2P
) -> AsyncIterator[P2P]:
    """A plain daemon connected to the peers at ``addresses``, with a new identity if none is given.

    It is one of ours if ``kind`` says so.
    """
    p2p = await kind.create(
        initial_peers=list(addresses),
        identity_path=identity and str(identity),
        check_if_identity_free=False,  # hivemind reads RSA keys only
    )
    try:
        yield p2p
    finally:
        await p2p.shutdown()


def place_of(p2p: P2P) -> DHTID:
    """Where it must stand in the DHT, or nobody asks it for anything."""
    return DHTID.generate(source=p2p.peer_id.to_bytes())


async def answer_finds(p2p: P2P, find: Callable[[Any], Any], *addresses: str) -> DHTProtocol:
    """A DHT protocol that those at ``addresses`` will ask; it answers with ``find(request)``."""

    async def rpc_find(
        self: DHTProtocol, request: dht_pb2.FindRequest, context: object
    ) -> dht_pb2.FindResponse:
        del context
        response = find(request)
        response.peer.CopyFrom(self.node_info)
        return response

    hostile: Any = type("DHTProtocol", (DHTProtocol,), {"rpc_find": rpc_find})
    protocol = await hostile.create(p2p, place_of(p2p), 20, 5, 5, 10.0)
    for address in addresses:
        await protocol.call_ping(peer_id_in(address))
    return protocol


async def store_at(p2p: P2P, address: str, key: str, subkey: bytes, value: bytes) -> list[bool]:
    """Call ``rpc_store`` of the peer at ``address``; what it stored."""
    request = dht_pb2.StoreRequest(
        keys=[DHTID.generate(source=key).to_bytes()],
        subkeys=[subkey],
        values=[value],
        expiration_time=[get_dht_time() + 5],
        in_cache=[False],
    )
    stub = super(DHTProtocol, DHTProtocol).get_stub(p2p, peer_id_in(address))
    reply = await stub.rpc_store(request, timeout=30)
    return list(reply.store_ok)


async def call_raw(p2p: P2P, address: str, method: str, data: bytes = b"") -> bytes:
    """What the peer at ``address`` answers when its ``method`` is called with these bytes, by plain hivemind.

    It begins with one byte, 0 or a `Refusal`; see `network.p2p.rpc`.
    """
    answer: bytes = await p2p._client.call_unary_handler(peer_id_in(address), method, data)
    return answer


async def answer_raw(p2p: P2P, method: str, answer: Callable[[bytes, PeerID], Awaitable[bytes]]) -> None:
    """From now on ``p2p`` answers calls of ``method`` with these bytes, as they are."""
    await p2p._client.add_unary_handler(method, answer)
