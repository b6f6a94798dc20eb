"""Somebody's own nodes stand nearest to the records in the DHT, and answer with dictionaries that are empty
for ever: real attackers, on plain hivemind, among seven honest peers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hivemind.proto import dht_pb2

from dupt_swarm.network.host import background
from dupt_swarm.network.members import gossip
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.validator import peers_key
from dupt_swarm.node.record import RecordUpdate
from tests.hostile.test_door import dictionary_of
from tests.hostile.test_eclipse import gossiping, run
from tests.support.signed_records import many_keys, nearest_keys, write_identity
from tests.support.stranger import answer_finds, stranger_beside

HONEST, HOSTILE = 7, 5  # each record is kept by five nodes


@pytest.fixture(scope="module")
def nearest_first(make_manifest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Identities of all, those first that stand nearest to the records.

    The attacker has the first of them: whoever makes keys for long enough comes to such.
    """
    folder, name = tmp_path_factory.mktemp("keys"), peers_key(make_manifest().swarm_id)
    keys = nearest_keys(many_keys(HOSTILE + HONEST), name)
    return [write_identity(key, folder / str(number)) for number, key in enumerate(keys)]


@pytest.fixture(scope="module")
def identities(nearest_first: list[Path]) -> list[Path]:
    """Those of the honest."""
    return nearest_first[HOSTILE:]


def nothing_for_ever(request: dht_pb2.FindRequest) -> dht_pb2.FindResponse:
    value = dictionary_of(float("inf"), float("inf"), [])
    result = dht_pb2.FindResult(type=dht_pb2.FOUND_DICTIONARY, value=value, expiration_time=float("inf"))
    return dht_pb2.FindResponse(results=[result] * len(request.keys))


@asynccontextmanager
async def surrounding(peers: list[Any], identities: list[Path]) -> AsyncIterator[None]:
    """Nodes that take whatever is stored at them, and show nothing of it."""
    addresses = [peer.address for peer in peers]
    async with AsyncExitStack() as stack:
        for identity in identities:
            p2p = await stack.enter_async_context(stranger_beside(*addresses, identity=identity))
            await answer_finds(p2p, nothing_for_ever, *addresses)
            while any(p2p.peer_id not in peer.dht.protocol.routing_table for peer in peers):
                await asyncio.sleep(0.05)
        yield


async def rounds_seen_by(member: Membership) -> dict[str, int]:
    return {peer.peer_id: peer.record.round for peer in (await member.refresh()).peers}


async def say(members: list[Membership], number: int) -> None:
    """All publish that they are at this round."""
    for member in members:
        member.update(RecordUpdate(round=number))
        await member.publish()


async def all_hear(members: list[Membership], number: int) -> None:
    """Return when each has heard of all that they are at this round."""
    heard = dict.fromkeys((member.peer_id for member in members), number)
    while [await rounds_seen_by(member) for member in members] != [heard] * len(members):
        await asyncio.sleep(0.1)
        await say(members, number)


def test_seven_peers_that_are_surrounded(
    stations, make_manifest, identities, nearest_first, monkeypatch
) -> None:
    """The DHT shows each peer itself and nobody else, as all records go to the attacker; yet all seven see
    whatever is new with the others. When the attacker has gone they see it by the DHT alone."""
    monkeypatch.setattr(gossip, "GOSSIP_SECONDS", 0.5)
    manifest = make_manifest()

    async def scenario() -> None:
        async with gossiping(stations, manifest, identities, HONEST) as (peers, members, gossips):
            async with surrounding(peers, nearest_first[:HOSTILE]), AsyncExitStack() as asking:
                await say(members, 0)
                seen = [await rounds_seen_by(member) for member in members]
                assert seen == [{member.peer_id: 0} for member in members]
                for each in gossips:
                    await asking.enter_async_context(background(each.ask_forever()))
                for number in (1, 2):
                    await all_hear(members, number)
                assert not any(peer.dht.protocol.storage.data for peer in peers)
            await all_hear(members, 3)
            assert any(peer.dht.protocol.storage.data for peer in peers)

    run(scenario)
