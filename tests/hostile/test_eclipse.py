"""Somebody owns the places of the DHT where records are kept, or fills them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgpack
import pytest
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.utils import get_dht_time
from hivemind.utils.timed_storage import ValueWithExpiration

from dupt_swarm.network.host import background
from dupt_swarm.network.members import known
from dupt_swarm.network.members.gossip import REPLY_BYTES, Gossip
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p import hivemind_dht
from dupt_swarm.network.p2p.limits import STRANGER
from dupt_swarm.network.p2p.rpc import ANSWERED, Refusal
from dupt_swarm.node.record import RecordUpdate
from tests.support.signed_records import fresh_key, id_of, signed_record, store_record
from tests.support.stranger import call_raw, stranger_beside

RECORDS, NOTHING_KNOWN = Gossip.rpc_records.name, msgpack.packb([[], []])
FIRST = 0  # the peer that all others were told of


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))


def eclipse(member: Membership) -> None:
    """Whatever ``member`` asks the DHT, it hears nothing; what it stores is dropped.

    As when somebody has made keys until the five places nearest to the records were its own.
    """
    protocol = member._node.protocol

    async def find(_peer, keys):
        nothing = ValueWithExpiration(DictionaryDHTValue(), get_dht_time() + 1e9)
        return {key: (nothing, {}) for key in keys}

    async def store(_peer, keys, *_args, **_kwargs):
        return [True] * len(keys)

    protocol.call_find, protocol.call_store = find, store


@asynccontextmanager
async def gossiping(stations, manifest, identities, count: int) -> AsyncIterator[tuple[list, list, list]]:
    """Peers of which the first is known to all; each has published its record."""
    async with stations(count, manifest) as peers:
        members = [
            Membership(manifest, peer.dht, load_identity(path))
            for peer, path in zip(peers, identities, strict=False)
        ]
        gossips = []
        for peer, member in zip(peers, members, strict=True):
            member.update(
                RecordUpdate(role="oracle", state="training", round=0, swarm_tokens=0, state_digest="a" * 64)
            )

            def seen(member=member) -> list[str]:
                return [each.peer_id for each in member.view.peers]

            gossips.append(Gossip(peer.p2p, member.records, lambda: {members[FIRST].peer_id}, seen))
            await gossips[-1].start()
        yield peers, members, gossips


async def seen_by(member: Membership) -> set[str]:
    return {peer.peer_id for peer in (await member.refresh()).peers}


def test_an_eclipse_in_the_dht(stations, make_manifest, identities) -> None:
    """Peers to which the DHT shows nobody see one another, as they told the first of themselves."""
    manifest = make_manifest()

    async def scenario() -> None:
        async with gossiping(stations, manifest, identities, 4) as (_, members, gossips):
            everybody = {member.peer_id for member in members}
            for member in members:
                eclipse(member)
                await member.publish()
            assert [await seen_by(member) for member in members] == [{member.peer_id} for member in members]
            for _ in range(2):
                for gossip in gossips[1:]:
                    for partner in await gossip.partners():
                        await gossip.ask(partner)
            assert [await seen_by(member) for member in members] == [everybody] * 4

    run(scenario)


def test_a_newcomer_in_an_eclipse(stations, make_manifest, identities, monkeypatch) -> None:
    """It sees everybody from the start, as those whom it joined tell it; one that is gone holds up nobody."""
    monkeypatch.setattr("dupt_swarm.network.members.gossip.FIRST_SECONDS", 8.0)  # for a busy machine
    manifest = make_manifest()

    async def scenario() -> None:
        async with gossiping(stations, manifest, identities, 4) as (_, members, gossips):
            for member in members[:3]:
                await member.publish()
            for member in members[:3]:
                await member.refresh()
            newcomer = members[3]
            eclipse(newcomer)
            gossips[3]._met = lambda: [id_of(fresh_key()), members[FIRST].peer_id]
            began = asyncio.get_running_loop().time()
            await gossips[3].begin()
            assert asyncio.get_running_loop().time() - began < 10
            assert await seen_by(newcomer) == {member.peer_id for member in members[:3]}

    run(scenario)


def test_gossip_in_the_background(stations, make_manifest, identities, monkeypatch) -> None:
    """It needs nobody to ask for it, and survives a partner that is gone."""
    monkeypatch.setattr("dupt_swarm.network.members.gossip.GOSSIP_SECONDS", 0.2)
    manifest = make_manifest()

    async def scenario() -> None:
        async with gossiping(stations, manifest, identities, 3) as (_, members, gossips):
            for member in members:
                eclipse(member)
                await member.publish()
            gossips[2]._met = lambda: [id_of(fresh_key()), members[FIRST].peer_id]
            async with AsyncExitStack() as asking:
                for gossip in gossips:
                    await asking.enter_async_context(background(gossip.ask_forever()))
                while any([len(await seen_by(member)) < 3 for member in members]):
                    await asyncio.sleep(0.1)

    run(scenario)


def test_who_is_up_to_date_is_told_nothing(stations, make_manifest, identities) -> None:
    """Gossip repeats nothing that the DHT has told a moment ago."""
    manifest = make_manifest()

    async def scenario() -> None:
        async with gossiping(stations, manifest, identities, 2) as (peers, members, gossips):
            for member in members:
                await member.publish()
            for member in members:
                await member.refresh()
            before = peers[1].p2p.counts.received
            await gossips[1].ask(members[FIRST].peer_id)
            assert peers[1].p2p.counts.received - before < 100

    run(scenario)


def test_records_without_end(stations, make_manifest, identities, monkeypatch) -> None:
    """A dictionary that is full takes members' records and no others: those who are there stay visible."""
    monkeypatch.setattr(hivemind_dht, "ENTRIES_MAX", 6)
    monkeypatch.setattr(known, "ENTRIES_MAX", 6)
    manifest = make_manifest()

    async def scenario() -> None:
        async with (
            gossiping(stations, manifest, identities, 3) as (peers, members, _),
            stranger_beside(*(peer.address for peer in peers)) as p2p,
        ):
            honest = {member.peer_id for member in members}
            for member in members:
                await member.publish()
            for member in members:
                assert await seen_by(member) == honest
            kept = []
            for _ in range(10):
                key = fresh_key()
                kept += [await store_record(p2p, peer.address, manifest, key) for peer in peers]
            assert kept.count(True) == 3 * 3
            for _ in range(2):
                for member in members:
                    await member.publish()
                    assert honest < await seen_by(member) and len(member.view.peers) == 6
            assert all(peer.p2p.refused["full"] > 0 for peer in peers)
            # One whose record went while the dictionary was full takes the place of a stranger.
            storage = peers[0].dht.protocol.storage
            kept_records = storage.get(members[1].records._key).value
            del kept_records[members[1]._tag]
            assert await store_record(p2p, peers[0].address, manifest, fresh_key())
            await members[1].publish()
            assert members[1]._tag in kept_records and len(kept_records) == 6

    run(scenario)


def test_asking_for_records_all_the_time(stations, make_manifest, identities) -> None:
    """It is refused soon, as each answer takes as long as many other calls."""
    manifest = make_manifest()

    async def scenario() -> None:
        async with (
            gossiping(stations, manifest, identities, 1) as ([peer], _, _),
            stranger_beside(peer.address) as p2p,
        ):
            answered, reply = 0, ANSWERED
            while reply[:1] == ANSWERED and answered < 200:
                reply = await call_raw(p2p, peer.address, RECORDS, NOTHING_KNOWN)
                answered += reply[:1] == ANSWERED
            assert reply[0] == Refusal.LATER and b"too many calls" in reply
            assert STRANGER.calls_at_once // Gossip.rpc_records.bounds.calls <= answered < 100

    run(scenario)


def test_those_met_that_are_gone(stations, make_manifest, identities) -> None:
    """They are asked for records only when nobody that was met is connected."""
    manifest, gone = make_manifest(), [id_of(fresh_key()) for _ in range(3)]

    async def scenario() -> None:
        async with gossiping(stations, manifest, identities, 2) as (_, members, gossips):
            gossips[1]._met, gossips[1]._known = lambda: [*gone, members[FIRST].peer_id], list
            for _ in range(20):
                assert await gossips[1].partners() == {members[FIRST].peer_id}
            gossips[1]._met = lambda: gone
            assert (await gossips[1].partners()).issubset(gone)

    run(scenario)


REQUESTS = {
    "nothing": b"",
    "a number": msgpack.packb(1),
    "no lists": msgpack.packb([1, 2]),
    "two records": msgpack.packb([[[b"a", b"b", 1.0]] * 2, []]),
    "a record of nobody": msgpack.packb([[[b"a", b"b", 1.0]], []]),
    "known by strings": msgpack.packb([[], [["a", 1.0]]]),
    "nested": b"\x91" * 1000 + b"\x90",
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_malformed_requests(stations, make_manifest, identities, kind: str) -> None:
    """They are refused, and the peer answers the next one."""
    manifest = make_manifest()

    async def scenario() -> None:
        async with (
            gossiping(stations, manifest, identities, 1) as ([peer], [member], _),
            stranger_beside(peer.address) as p2p,
        ):
            await member.publish()
            refusal = await call_raw(p2p, peer.address, RECORDS, REQUESTS[kind])
            assert refusal[0] == Refusal.MALFORMED
            answer = await call_raw(p2p, peer.address, RECORDS, NOTHING_KNOWN)
            assert [row[0] for row in msgpack.unpackb(answer.removeprefix(ANSWERED))] == [member._tag]

    run(scenario)


def test_forged_records_are_not_passed_on(stations, make_manifest, identities) -> None:
    """What is told directly is checked like what the DHT tells: signature, content, time."""
    manifest = make_manifest()
    key, other = fresh_key(), fresh_key()
    tag, value, expires = signed_record(manifest, key)
    forged = [
        [tag, value[:-20] + bytes(20), expires],
        [tag, value, expires + 1],
        signed_record(manifest, key, seconds=1e6),
        [signed_record(manifest, other)[0], value, expires],
    ]

    async def scenario() -> None:
        async with (
            gossiping(stations, manifest, identities, 1) as ([peer], [member], _),
            stranger_beside(peer.address) as p2p,
        ):
            for row in forged:
                answer = await call_raw(p2p, peer.address, RECORDS, msgpack.packb([[row], []]))
                assert answer[:1] == ANSWERED
            assert await seen_by(member) == set()
            assert member.view.refused == {"signature": 3, "time": 1}
            answer = await call_raw(p2p, peer.address, RECORDS, msgpack.packb([[[tag, value, expires]], []]))
            assert len(answer) <= len(ANSWERED) + REPLY_BYTES
            assert await seen_by(member) == {id_of(key)}

    run(scenario)
