"""Where records are kept, with real DHT nodes: whom a peer asks, how often, and what it learns."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import DHTRecord
from hivemind.utils import get_dht_time

from dupt_swarm.network.members import known
from dupt_swarm.network.members.identity import KEY_BEGINNINGS, TAG_BEGIN, TAG_BYTES, TAG_END, load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.replicas import Replicas
from dupt_swarm.network.members.validator import peers_key, published
from dupt_swarm.network.p2p.dht_messages import Row
from dupt_swarm.node.record import RecordUpdate
from tests.support.signed_records import fresh_key, signed_record

Members = list[Membership]


class Calls:
    """What one peer asks of others: ``found`` and ``stored`` count its requests."""

    def __init__(self, member: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found = self.stored = 0
        protocol = member._node.protocol
        call_find, call_store = protocol.call_find, protocol.call_store

        async def find(*args):
            self.found += 1
            return await call_find(*args)

        async def store(*args):
            self.stored += 1
            return await call_store(*args)

        monkeypatch.setattr(protocol, "call_find", find)
        monkeypatch.setattr(protocol, "call_store", store)


@pytest.fixture
def members(stations, identities, make_manifest) -> Callable[..., AbstractAsyncContextManager[Members]]:
    """``async with members()``: four, two of which keep the records of all; each has published its own."""

    @asynccontextmanager
    async def start():
        manifest = make_manifest(limits={"record_seconds": 60})
        async with stations(4, manifest) as started:
            found = []
            for station, identity in zip(started, identities, strict=True):
                station.dht.num_replicas = 2
                found.append(Membership(manifest, station.dht, load_identity(identity)))
                found[-1].update(
                    RecordUpdate(
                        role="oracle", state="training", round=0, swarm_tokens=0, state_digest="a" * 64
                    )
                )
            for _ in range(2):  # the first peers heard of the others meanwhile
                for member in found:
                    await member.publish()
            yield found

    return start


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def keeps(member: Membership) -> bool:
    """Whether it is one of those that keep all records."""
    return member.records._nearest()[1]


def test_everybody_is_read_from_one(members, monkeypatch) -> None:
    """Once all replicas were read, one request tells of everybody; publishing asks nobody for anything."""

    async def scenario() -> None:
        async with members() as found:
            everybody = [member.peer_id for member in found]
            for member in found:
                assert {peer.peer_id for peer in (await member.refresh()).peers} == set(everybody)
            assert sum(map(keeps, found)) == 2
            for member in found:
                calls = Calls(member, monkeypatch)
                before = {peer.peer_id: peer.record.time for peer in member.view.peers}
                for other in found:
                    if other is not member:
                        await other.publish()
                view = await member.refresh()
                assert all(
                    peer.record.time > before[peer.peer_id]
                    for peer in view.peers
                    if peer.peer_id != member.peer_id
                )
                assert (calls.found, calls.stored) == (1, 0)
                await member.publish()
                assert (calls.found, calls.stored) == (1, 2 - keeps(member))

    run(scenario)


def test_one_that_falls_silent_is_passed_over(members, monkeypatch) -> None:
    """Records are read from the others then, and stored at those that are next; nobody waits for it again."""

    async def scenario() -> None:
        async with members() as found:
            for member in found:
                await member.refresh()
            dead = next(filter(keeps, found))
            await dead._node.shutdown()
            await dead._node.protocol.p2p.shutdown()
            living = [member for member in found if member is not dead]
            for member in living:
                await member.publish()
            before = min(peer.record.time for member in living for peer in member.view.peers)
            for member in living:
                await member.publish()
            assert sum(map(keeps, living)) == 2
            for member in living:
                calls = Calls(member, monkeypatch)
                view = await member.refresh()
                assert {other.peer_id for other in living} <= {peer.peer_id for peer in view.peers}
                assert all(p.record.time > before for p in view.peers if p.peer_id != dead.peer_id)
                assert calls.found == 1

    run(scenario)


def test_nobody_there(members) -> None:
    """A peer alone keeps its own record, and finds it."""

    async def scenario() -> None:
        async with members() as found:
            alone, *others = found
            for member in others:
                await member._node.shutdown()
                await member._node.protocol.p2p.shutdown()
            for _ in range(2):  # the first one shows that the others are gone
                await alone.publish()
            board = Replicas(alone._node, peers_key(alone._manifest.swarm_id))
            assert alone._tag in await board.read()

    run(scenario)


def test_a_malformed_answer_counts_as_none(members, monkeypatch) -> None:
    """Whoever keeps the records and answers with a result of no known type is passed over."""
    hostile: list[DHTID] = []
    answer = DHTProtocol.rpc_find

    async def rpc_find(self, request, context):
        response = await answer(self, request, context)
        for result in response.results if self.node_id in hostile else ():
            result.type = 7
        return response

    monkeypatch.setattr(DHTProtocol, "rpc_find", rpc_find)

    async def scenario() -> None:
        async with members() as found:
            liar = next(filter(keeps, found))
            hostile.append(liar._node.node_id)
            for member in found:
                for _ in range(3):
                    view = await member.refresh()
                assert {peer.peer_id for peer in view.peers} == {each.peer_id for each in found}
                before = min(peer.record.time for peer in view.peers)
                for other in found:
                    await other.publish()
                for _ in range(3):  # some still store at the liar, others at the next one
                    view = await member.refresh()
                assert all(peer.record.time > before for peer in view.peers)

    run(scenario)


def test_nobody_has_two_places(members) -> None:
    """A node that was put at five places still is one of those that are asked."""

    async def scenario() -> None:
        async with members() as found:
            victim, liar, *_ = found
            key = victim.records._key
            for number in range(5):
                place = DHTID(int(key) ^ (number + 1))
                victim._node.protocol.routing_table.add_or_update_node(place, liar._node.peer_id)
            nearest, _ = victim.records._nearest()
            assert list(nearest.values()).count(liar._node.peer_id) == 1
            assert len(nearest) + keeps(victim) == 2

    run(scenario)


def test_a_cached_record_hides_no_others(members) -> None:
    """One that is to be cached, and expires later than all others, is one among them."""

    async def scenario() -> None:
        async with members() as found:
            *keepers, liar, reader = sorted(found, key=keeps, reverse=True)
            board, protocol = liar.records, liar._node.protocol
            dumps, expires = protocol.serializer.dumps, get_dht_time() + 62
            value = dumps(published(liar._record))
            record = DHTRecord(board._key.to_bytes(), dumps(liar._tag), value, expires)
            signed = protocol.record_validator.sign_value(record)
            entry = ([board._key], [signed], [expires], [liar._tag])
            for keeper in keepers:
                assert await protocol.call_store(keeper._node.peer_id, *entry, in_cache=True) == [True]
            fresh = Replicas(reader._node, peers_key(reader._manifest.swarm_id))
            assert set(await fresh.read()) == {member._tag for member in found}

    run(scenario)


def test_a_malformed_key_in_a_full_book(members, monkeypatch) -> None:
    """A record whose owner tag only looks like one is passed over, and the rest of what was told is read."""
    begin = TAG_BEGIN + KEY_BEGINNINGS[0]
    nobody = Row(begin.ljust(TAG_BYTES - len(TAG_END), b"!") + TAG_END, b"value", get_dht_time() + 20)

    async def scenario() -> None:
        async with members() as found:
            records, key = found[0].records, fresh_key()
            early, late = (Row(*signed_record(found[0]._manifest, key, seconds)) for seconds in (10, 20))
            records.merge([early])
            monkeypatch.setattr(known, "ENTRIES_MAX", 1)
            records.merge([nobody, late])
            assert late in records.rows and early not in records.rows

    run(scenario)
