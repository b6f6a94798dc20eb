"""Records that name the address of somebody who has nothing to do with the swarm."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from dupt_swarm.network.members.dialling import TOLERATED_AT_HOST, Dialler
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.network.members.membership import Membership
from tests.support.signed_records import fresh_key, tell_record
from tests.support.stranger import stranger_beside

KEYS, PORTS = 12, 3


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


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


def test_records_that_name_a_bystander(stations, make_manifest, identities) -> None:
    """Oracles that are all said to be at one host make a peer call there a few times, and no more."""
    manifest = make_manifest()

    async def scenario() -> None:
        async with (
            stations(2, manifest) as [peer, _],
            stranger_beside(peer.address) as p2p,
            bystander() as victim,
        ):
            member = Membership(manifest, peer.p2p, load_identity(identities[0]))
            await member.gossip.start()
            for _ in range(KEYS):
                key = fresh_key()
                await tell_record(p2p, peer.address, manifest, key, addresses=list(victim.addresses))
            detector = FailureDetector(Dialler(peer.p2p), member)
            for _ in range(6):
                view = await member.refresh()
                assert len(view.oracles) == KEYS
                await detector.feel(view)
            assert 0 < victim.calls <= TOLERATED_AT_HOST + 1

    run(scenario)


def test_addresses_of_others_networks(stations, make_manifest, identities) -> None:
    """What a record says is in the local network is not dialled by a peer that has nobody there."""
    manifest = make_manifest()
    told = ("/ip4/192.168.1.1/tcp/80", "/ip4/0.0.0.0/tcp/22", "/dns4/localhost/tcp/22")

    async def scenario() -> None:
        async with stations(2, manifest) as [peer, _], stranger_beside(peer.address) as p2p:
            member = Membership(manifest, peer.p2p, load_identity(identities[0]))
            await member.gossip.start()
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

    run(scenario)
