"""The count of bytes exchanged with other peers, over real libp2p daemons."""

import asyncio
from typing import AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext, ServicerBase

from dupt_swarm.network.p2p.daemon import connect


class Echo(ServicerBase):
    """Answers as often as is asked, in all the ways in which hivemind lets peers ask."""

    async def rpc_once(self, request: BytesValue, _context: P2PContext) -> BytesValue:
        return BytesValue(value=2 * request.value)

    async def rpc_many(self, request: BytesValue, _context: P2PContext) -> AsyncIterator[BytesValue]:
        for _ in range(3):
            yield request

    async def rpc_both(
        self, requests: AsyncIterator[BytesValue], _context: P2PContext
    ) -> AsyncIterator[BytesValue]:
        async for request in requests:
            yield request


async def twice(message: BytesValue) -> AsyncIterator[BytesValue]:
    yield message
    yield message


def test_both_sides_count_the_same(stations) -> None:
    """What one sends is what the other receives, to the byte, in single messages and in streams."""

    async def run() -> None:
        async with stations(2) as (server, client):
            echo = Echo()
            await echo.add_p2p_handlers(server.p2p)
            await connect(client.p2p, [server.address])
            stub = Echo.get_stub(client.p2p, server.p2p.peer_id)
            message = BytesValue(value=b"x" * 1000)
            size, double = message.ByteSize(), BytesValue(value=b"x" * 2000).ByteSize()
            assert (await stub.rpc_once(message)).value == 2 * message.value
            assert len([reply async for reply in await stub.rpc_many(message)]) == 3
            assert len([reply async for reply in await stub.rpc_both(twice(message))]) == 2

            sent, received = 4 * size, double + 5 * size
            mine, theirs = client.p2p.traffic.read(), server.p2p.traffic.read()
            assert (mine.sent, mine.received) == (sent, received)
            assert (theirs.sent, theirs.received) == (received, sent)

    asyncio.run(run())
