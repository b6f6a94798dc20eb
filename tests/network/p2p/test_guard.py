"""What becomes of streams that are open when a node ends."""

import asyncio
from typing import AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2PContext, ServicerBase

from dupt_swarm.network.host import background
from dupt_swarm.network.p2p.rpc import BOUNDS, Bounds


class Busy(ServicerBase):
    """Never comes to read what it is sent."""

    async def rpc_read(
        self, stream: AsyncIterator[BytesValue], context: P2PContext
    ) -> AsyncIterator[BytesValue]:
        del stream, context
        yield await asyncio.Event().wait() and BytesValue()


BOUNDS["Busy.rpc_read"] = Bounds(4096, 4096)


async def requests() -> AsyncIterator[BytesValue]:
    """More than are read ahead."""
    for _ in range(100):
        yield BytesValue()


async def test_a_stream_that_is_open_at_the_end(stations, make_manifest) -> None:
    """It ends with the node, and nothing complains of it."""
    async with stations(2, make_manifest()) as (server, client):
        await Busy().add_p2p_handlers(server.p2p)
        replies = await Busy.get_stub(client.p2p, server.p2p.peer_id).rpc_read(requests())
        async with background(anext(replies)):
            await asyncio.sleep(1.0)
