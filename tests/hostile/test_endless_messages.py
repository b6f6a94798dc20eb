"""Somebody announces messages without end to a node in a process of its own, and sends 700 MB of them."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hivemind.p2p import P2P

from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.network.states.hello import Hello
from tests.support.chaos.swarm import MANIFEST, first_peer
from tests.support.stranger import call_raw, peer_id_in, stranger_beside

SENT_BYTES = 700 << 20
PIECE = bytes(1 << 20)
GROWTH_BYTES_MAX = 64 << 20
# As users have it: daemons under test otherwise never collect what is garbage.
AS_IT_COMES = {"GOGC": "100", "GOMEMLIMIT": "off"}
LENGTH = 1 << 40
# A handler, and how a message to it begins that is said to be so long.
BEGINNINGS = {
    "a stream": ("Exchange.rpc_chunks", P2P.MESSAGE_MARKER + LENGTH.to_bytes(P2P.HEADER_LEN, P2P.BYTEORDER)),
    "a call": ("DHTProtocol.rpc_find", b"\x80\x80\x80\x80\x80\x20"),  # libp2p's manner
}


class Resident:
    """The memory of a peer's processes, as often as the test looks.

    Attributes:
        growth: of each the most bytes by which it has grown so far.
    """

    def __init__(self, *processes: psutil.Process) -> None:
        self._processes = processes
        self._before = self._sizes()
        self.growth = [0 for _ in processes]

    def look(self) -> None:
        grown = (now - before for now, before in zip(self._sizes(), self._before, strict=True))
        self.growth = list(map(max, self.growth, grown))

    def _sizes(self) -> list[int]:
        return [process.memory_info().rss for process in self._processes]


async def send_on(p2p: P2P, address: str, handler: str, beginning: bytes, look: Callable[[], None]) -> None:
    """Begin such a message and send of it until it is hung up on."""
    _, _, writer = await p2p.call_binary_stream_handler(peer_id_in(address), handler)
    with contextlib.closing(writer), contextlib.suppress(ConnectionError):
        writer.write(beginning)
        for _ in range(SENT_BYTES // len(PIECE)):
            writer.write(PIECE)
            await writer.drain()
            look()


def read_by(process: psutil.Process) -> int:
    """Bytes, all its sockets together, since it began."""
    return int(process.io_counters().read_chars)


@pytest.mark.system
@pytest.mark.usefixtures("nothing_left")
async def test_seven_hundred_megabytes_of_a_message_without_end(tmp_path: Path) -> None:
    """Who sends on, and begins again when it is hung up on, until so much of each kind has been read, fills
    neither the node's memory nor its daemon's; none is replaced, and whoever asks next is answered."""
    with first_peer(tmp_path / "first", **AS_IT_COMES) as peer:
        address, processes = peer.joined()["address"], (peer.node, peer.daemon)
        memory = Resident(*processes)
        async with stranger_beside(address) as p2p:
            for kind in BEGINNINGS:
                enough = read_by(peer.daemon) + SENT_BYTES
                while read_by(peer.daemon) < enough:
                    await send_on(p2p, address, *BEGINNINGS[kind], memory.look)
                    memory.look()
        async with stranger_beside(address) as other:
            reply = await call_raw(other, address, "Exchange.rpc_hello")
        hello = Hello.read(reply.removeprefix(ANSWERED))
        assert hello.swarm_id == MANIFEST.swarm_id
        assert (peer.node, peer.daemon) == processes
        assert max(memory.growth) < GROWTH_BYTES_MAX, [size >> 20 for size in memory.growth]
