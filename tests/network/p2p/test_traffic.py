"""The count of bytes exchanged with other peers, over real libp2p daemons."""

import asyncio

from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import Raw, rpc, rpc_stream

FRAME = 3  # of a `BytesValue` that is longer than 127 bytes: a tag, and its length
ANSWERED = 1


class Echo:
    """Answers as often as is asked."""

    @rpc(Raw, Raw, longest=(4096, 4096))
    async def rpc_once(self, request: Raw, _caller: str) -> Raw:
        return Raw(2 * request.data)

    @rpc_stream(Raw, longest=(4096, 4096))
    async def rpc_many(self, request: Raw, _caller: str):
        for _ in range(3):
            yield request.data


def test_both_sides_count_the_same(stations) -> None:
    """What one sends is what the other receives, to the byte, in single messages and in streams."""

    async def run() -> None:
        async with stations(2) as (server, client):
            await server.p2p.serve(Echo())
            await connect(client.p2p, [server.address])
            message, peer = Raw(b"x" * 1000), server.p2p.peer_id
            assert (await client.p2p.call(peer, Echo.rpc_once, message)).data == 2 * message.data
            assert len([reply async for reply in client.p2p.stream(peer, Echo.rpc_many, message)]) == 3

            sent, received = 1000 + FRAME + 1000, ANSWERED + 2000 + 3 * (FRAME + ANSWERED + 1000)
            mine, theirs = client.p2p.counts, server.p2p.counts
            assert (mine.sent, mine.received) == (sent, received)
            assert (theirs.sent, theirs.received) == (received, sent)

    asyncio.run(run())
