"""Records that name the address of somebody who has nothing to do with the swarm."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hivemind.p2p import PeerID
from hivemind.proto.dht_pb2 import FindResponse

from dupt_swarm.network.members.dialling import TOLERATED_AT_HOST, Dialler
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.daemon import BACKOFF_SECONDS
from dupt_swarm.network.p2p.rpc import CallError, Raw, Refusal
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange
from dupt_swarm.node.addresses import Address
from tests.support.signed_records import fresh_key, id_of, tell_record
from tests.support.stranger import answer_finds, stranger_beside

KEYS, PORTS = 12, 3
CHUNKS = ChunksMessage(digest="0" * 64, numbers=(0,))


class Bystander:
    """Listens on a few ports, and counts who calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.addresses: tuple[str, ...] = ()

    async def answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def bystander() -> AsyncIterator[Bystander]:
    victim = Bystander()
    servers = [await asyncio.start_server(victim.answer, "127.0.0.1", 0) for _ in range(PORTS)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    victim.addresses = tuple(f"/ip4/127.0.0.1/tcp/{port}" for port in ports)
    try:
        yield victim
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


async def test_records_that_name_a_bystander(stations, make_manifest, identities) -> None:
    """Oracles that are all said to be at one host make a peer call there a few times, and no more."""
    manifest = make_manifest()
    async with (
        stations(2, manifest) as [peer, _],
        stranger_beside(peer.address) as p2p,
        bystander() as victim,
    ):
        member = Membership(manifest, peer.p2p, load_identity(identities[0]))
        await peer.p2p.serve(member.gossip)
        for _ in range(KEYS):
            key = fresh_key()
            await tell_record(p2p, peer.address, manifest, key, addresses=list(victim.addresses))
        detector = FailureDetector(Dialler(peer.p2p), member)
        for _ in range(6):
            view = await member.refresh()
            assert len(view.oracles) == KEYS
            await detector.feel(view)
        assert 0 < victim.calls <= TOLERATED_AT_HOST + 1


async def test_calls_dial_nobody_who_was_never_met(stations) -> None:
    """libp2p keeps the addresses at which it has dialled in vain, and would dial them with each call."""
    async with stations(1) as [peer], bystander() as victim:
        dialler, phantom = Dialler(peer.p2p), id_of(fresh_key())
        await dialler.connected()
        assert await asyncio.gather(*(dialler.dial(Address(way, phantom)) for way in victim.addresses))
        dialled = victim.calls
        assert dialled > 0
        await asyncio.sleep(BACKOFF_SECONDS)
        with pytest.raises(CallError) as called:
            await peer.p2p.call(phantom, Exchange.rpc_hello, Raw())
        with pytest.raises(CallError) as streamed:
            await anext(peer.p2p.stream(phantom, Exchange.rpc_chunks, CHUNKS))
        assert called.value.refusal == streamed.value.refusal == Refusal.UNREACHABLE
        assert victim.calls == dialled


async def test_who_calls_was_met(stations, make_manifest, identities) -> None:
    """A peer that was dialled in vain is called as soon as it has called itself."""
    async with stations(1, make_manifest()) as [peer], bystander() as victim:
        late = PeerID.from_base58(id_of(load_identity(identities[1])))
        dialler, ping = Dialler(peer.p2p), peer.dht.protocol.call_ping
        await dialler.connected()
        assert await dialler.dial(Address(victim.addresses[0], str(late)))
        assert await ping(late) is None
        async with stranger_beside(peer.address, identity=identities[1]) as p2p:
            await answer_finds(p2p, lambda _: FindResponse(), peer.address)
            assert await ping(late) is not None


async def test_addresses_of_others_networks(stations, make_manifest, identities) -> None:
    """What a record says is in the local network is not dialled by a peer that has nobody there."""
    manifest = make_manifest()
    told = ("/ip4/192.168.1.1/tcp/80", "/ip4/0.0.0.0/tcp/22", "/dns4/localhost/tcp/22")
    async with stations(2, manifest) as [peer, _], stranger_beside(peer.address) as p2p:
        member = Membership(manifest, peer.p2p, load_identity(identities[0]))
        await peer.p2p.serve(member.gossip)
        await tell_record(p2p, peer.address, manifest, fresh_key(), addresses=list(told))
        dialled: list[str] = []
        dialler = Dialler(peer.p2p)
        dial = dialler.dial

        async def note(address):
            outcome = await dial(address)
            dialled.extend([] if outcome is None else [str(address)])
            return outcome

        dialler.dial = note  # type: ignore[method-assign]
        await FailureDetector(dialler, member).feel(await member.refresh())
        assert dialled == []
