"""Somebody invents peers without end, forges records, or asks and tells without end."""

import msgpack
import pytest

from dupt_swarm.network.members import records
from dupt_swarm.network.members.gossip import REPLY_BYTES, Gossip, Request, Told
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.limits import STRANGER
from dupt_swarm.network.p2p.rpc import ANSWERED, Refusal
from dupt_swarm.replica.signed import public_of, sign
from tests.support.signed_records import (
    ask,
    fresh_key,
    fresh_keys,
    id_of,
    members_at,
    signed_record,
    tell,
    tell_record,
)
from tests.support.stranger import call_raw, stranger_beside


async def seen_by(member: Membership) -> set[str]:
    return {peer.peer_id for peer in (await member.refresh()).peers}


async def meet(members: list[Membership]) -> None:
    """All come to know all."""
    for _ in range(2):
        for member in members:
            await member.publish()
            await member.refresh()
    for member in members:
        assert await seen_by(member) == {each.peer_id for each in members}


async def test_records_without_end(stations, make_manifest, monkeypatch) -> None:
    """When all places are taken those who are there stay visible, and a mate finds a place all the same."""
    monkeypatch.setattr(records, "RECORDS_MAX", 6)
    manifest, keys = make_manifest(), fresh_keys(11)
    async with (
        stations(3, manifest) as peers,
        members_at(peers, manifest) as members,
        stranger_beside(*(peer.address for peer in peers)) as p2p,
    ):
        await meet(members)
        honest = {member.peer_id for member in members}
        for key in keys[:10]:
            for peer in peers:
                await tell_record(p2p, peer.address, manifest, key)
        for _ in range(2):
            for member in members:
                await member.publish()
                assert honest < await seen_by(member) and len(member.view.peers) == 6
        assert all(peer.p2p.refused["full"] > 0 for peer in peers)
        # One whose record went while all places were taken takes that of a stranger.
        first, second, _ = members
        del first.records._known[second.peer_id]
        await tell_record(p2p, peers[0].address, manifest, keys[10])
        first.attendance.ended([second.peer_id], [second.peer_id])
        await second.gossip.ask(first.peer_id)
        await second.publish()
        assert honest <= await seen_by(first) and len(first.records) == 6


async def test_invented_peers_are_not_asked(stations, make_manifest) -> None:
    """Beside a hundred that exist only as keys, all that is asked is asked of those who are there."""
    manifest, keys = make_manifest(), fresh_keys(100)
    async with (
        stations(2, manifest) as peers,
        members_at(peers, manifest) as members,
        stranger_beside(peers[0].address) as p2p,
    ):
        await meet(members)
        for key in keys:
            await tell_record(p2p, peers[0].address, manifest, key)
        first, other = members
        assert len(await seen_by(first)) == 2 + len(keys)
        asked = [await first.gossip.partners() for _ in range(20)]
        assert asked == [{other.peer_id}] * 20
        assert await first.gossip._connected() == [other.peer_id]


async def test_asking_for_records_all_the_time(stations, make_manifest) -> None:
    """It is refused soon, as each answer takes as long as many other calls; so is telling all the time."""
    manifest = make_manifest()
    data = signed_record(manifest, fresh_key())
    for method, message in ((Gossip.rpc_records, Request(b"", {})), (Gossip.rpc_tell, Told(data))):
        async with (
            stations(1, manifest) as [peer],
            members_at([peer], manifest),
            stranger_beside(peer.address) as p2p,
        ):
            most, answered = STRANGER.calls_at_once // method.bounds.calls, 0
            while (reply := await call_raw(p2p, peer.address, method.name, message.pack()))[0] == 0:
                answered += 1
                assert answered < 3 * most
            assert reply[0] == Refusal.LATER and b"too many calls" in reply
            assert most <= answered


REQUESTS = {
    "nothing": b"",
    "a number": msgpack.packb(1),
    "no bytes": msgpack.packb([1, 2]),
    "a list": msgpack.packb([b"", [1.0]]),
    "a piece of one": msgpack.packb([b"", bytes(17)]),
    "more than there are": msgpack.packb([b"", bytes(16 * 1025)]),
    "a long record": msgpack.packb([bytes(5000), b""]),
    "nested": b"\x91" * 1000 + b"\x90",
}


@pytest.mark.parametrize("kind", REQUESTS)
async def test_malformed_requests(stations, make_manifest, kind: str) -> None:
    """They are refused, and the peer answers the next one."""
    manifest = make_manifest()
    async with (
        stations(1, manifest) as [peer],
        members_at([peer], manifest) as [member],
        stranger_beside(peer.address) as p2p,
    ):
        await member.publish()
        for method in (Gossip.rpc_records, Gossip.rpc_tell):
            reply = await call_raw(p2p, peer.address, method.name, REQUESTS[kind])
            assert reply[0] in (Refusal.MALFORMED, Refusal.TOO_LONG)
        assert await ask(p2p, peer.address) == tuple(each.data for each in member.records) != ()


async def test_forged_records_are_not_passed_on(stations, make_manifest) -> None:
    """Whoever tells them, each is checked: signature, content, time; and in a question as when it is told."""
    manifest = make_manifest()
    key, other = fresh_key(), fresh_key()
    data = signed_record(manifest, key)
    text, public, signature = msgpack.unpackb(data)
    forged = [
        data[:-20] + bytes(20),
        msgpack.packb([text.replace(b'"round":0', b'"round":9'), public, signature]),
        signed_record(manifest, key, seconds=1e6),
        msgpack.packb([text, public_of(other), signature]),
        sign(key, "record", {"expires": 9e9}),
    ]
    async with (
        stations(1, manifest) as [peer],
        members_at([peer], manifest) as [member],
        stranger_beside(peer.address) as p2p,
    ):
        asking = Gossip.rpc_records.name
        for number, each in enumerate(forged):
            if number % 2:
                await tell(p2p, peer.address, each, urgent=True)
            else:
                await call_raw(p2p, peer.address, asking, Request(each, {}).pack())
        assert await seen_by(member) == set()
        assert member.view.refused == {"signature": 3, "time": 1, "content": 1}
        answer = await call_raw(p2p, peer.address, asking, Request(data, {}).pack())
        assert len(answer) <= len(ANSWERED) + REPLY_BYTES
        assert await seen_by(member) == {id_of(key)}
