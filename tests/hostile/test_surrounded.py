"""Somebody's own nodes are most of those that peers are connected to, swallow whatever they are told, and say
that they know nobody: real attackers, on plain hivemind, among seven honest peers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hivemind.p2p import PeerID

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import background
from dupt_swarm.network.members import gossip
from dupt_swarm.network.members.gossip import Answer, Gossip
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.node.record import RecordUpdate
from tests.support.signed_records import fresh_keys, members_at, tell_record, write_identity
from tests.support.stranger import answer_raw, stranger_beside

HONEST, HOSTILE = 7, 8


@pytest.fixture(scope="module")
def all_identities(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Those of the attacker, and then those of the honest."""
    folder = tmp_path_factory.mktemp("keys")
    return [
        write_identity(key, folder / str(number)) for number, key in enumerate(fresh_keys(HOSTILE + HONEST))
    ]


@pytest.fixture(scope="module")
def identities(all_identities: list[Path]) -> list[Path]:
    """Those of the honest."""
    return all_identities[HOSTILE:]


async def swallow(_request: bytes, _caller: PeerID) -> bytes:
    return ANSWERED


async def know_nobody(_request: bytes, _caller: PeerID) -> bytes:
    return ANSWERED + Answer((), more=False).pack()


@asynccontextmanager
async def surrounding(peers: list[Any], manifest: Manifest, identities: list[Path]) -> AsyncIterator[None]:
    """Nodes that seem to take part, and are connected to each of ``peers``."""
    addresses = [peer.address for peer in peers]
    async with AsyncExitStack() as stack:
        for identity in identities:
            p2p = await stack.enter_async_context(stranger_beside(*addresses, identity=identity))
            await answer_raw(p2p, Gossip.rpc_tell.name, swallow)
            await answer_raw(p2p, Gossip.rpc_records.name, know_nobody)
            for address in addresses:
                await tell_record(p2p, address, manifest, load_identity(identity))
        yield


def rounds_seen_by(member: Membership) -> dict[str, int]:
    return {peer.peer_id: peer.record.round for peer in member.look().peers}


async def all_hear(members: list[Membership], number: int) -> float:
    """All publish that they are at this round; the seconds until each has heard that of all."""
    began = asyncio.get_running_loop().time()
    for member in members:
        member.update(RecordUpdate(round=number))
        await member.publish()
    said = {member.peer_id: number for member in members}
    while not all(said.items() <= rounds_seen_by(member).items() for member in members):
        await asyncio.sleep(0.05)
    return asyncio.get_running_loop().time() - began


async def test_seven_peers_that_are_surrounded(stations, make_manifest, all_identities, monkeypatch) -> None:
    """Each tells two of fourteen, mostly liars, and asks one at a time; yet all seven hear of one another,
    whatever is new, again and again."""
    monkeypatch.setattr(gossip, "ALL_MAX", 2)
    monkeypatch.setattr(gossip, "SOME", 2)
    monkeypatch.setattr(gossip, "PASSED_ON", 2)
    monkeypatch.setattr(gossip, "PULL_SECONDS", 0.3)
    manifest = make_manifest()
    async with (
        stations(HONEST, manifest) as peers,
        members_at(peers, manifest) as members,
        surrounding(peers, manifest, all_identities[:HOSTILE]),
        AsyncExitStack() as asking,
    ):
        assert all(len(rounds_seen_by(member)) == HOSTILE for member in members)
        for member in members:
            await asking.enter_async_context(background(member.gossip.pull_forever()))
        for number in range(3):
            await all_hear(members, number)
