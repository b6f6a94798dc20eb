"""How records spread among real peers on loopback."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from dupt_swarm.network.host import background
from dupt_swarm.network.members import gossip
from dupt_swarm.network.members.gossip import TOLD_MAX, Answer, Gossip, Request, Told
from dupt_swarm.network.members.identity import NAME_BYTES
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.records import RECORD_BYTES_MAX, RECORDS_MAX
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from tests.support.signed_records import fresh_key, fresh_keys, id_of, members_at, signed_record, tell
from tests.support.stranger import stranger_beside


def rounds_seen_by(member: Membership) -> dict[str, int]:
    return {peer.peer_id: peer.record.round for peer in member.look().peers}


def losses_seen_by(member: Membership) -> dict[str, float | None]:
    return {peer.peer_id: peer.record.loss for peer in member.look().peers}


def keep_own(member: Membership) -> None:
    """Have a record of its own, of which nobody is told."""
    assert member._record is not None
    member.records.publish(member._key, member._record)


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def test_what_is_published_is_told_to_whoever_is_there(stations, make_manifest) -> None:
    """Nobody needs to ask, once all know of each other."""
    manifest = make_manifest()
    async with stations(3, manifest) as peers, members_at(peers, manifest) as members:
        everybody = {member.peer_id for member in members}
        for _ in range(2):
            for member in members:
                await member.publish()
                await member.gossip.pull()
        members[0].update(RecordUpdate(round=7))
        await members[0].publish(urgent=False)
        for member in members:
            assert rounds_seen_by(member) == dict.fromkeys(everybody, 0) | {members[0].peer_id: 7}


async def test_what_matters_comes_as_the_daemon_dies(stations, make_manifest) -> None:
    """It is taken, and passed on to nobody; the task that would have passed it on leaves no error behind."""
    manifest, key = make_manifest(), fresh_key()
    async with stations(2, manifest) as peers, members_at(peers, manifest) as [member, other]:
        peers[0].p2p._child.kill()
        await peers[0].p2p._child.wait()
        urgent = Told(signed_record(manifest, key), (), urgent=True)
        await member.gossip.rpc_tell(urgent, other.peer_id)
        assert member.gossip._calls
        await until(lambda: not member.gossip._calls)
        assert id_of(key) in rounds_seen_by(member)


async def test_what_matters_is_passed_on(stations, make_manifest, monkeypatch) -> None:
    """A peer hears at once of a change at one to which it is not connected, and of all else when it asks."""
    manifest = make_manifest()
    async with stations(3) as peers, members_at(peers, manifest) as members:
        one, between, other = members
        for peer in (peers[0], peers[2]):
            await connect(peer.p2p, [peers[1].address])

        async def only_the_one_between() -> list[str]:
            return [between.peer_id]

        # Whomever libp2p connects by itself.
        monkeypatch.setattr(one.gossip, "_connected", only_the_one_between)
        for member in (one, other, between, one):
            await member.publish()
            await member.gossip.pull()
        await other.gossip.pull()
        one.update(RecordUpdate(round=1))
        await one.publish()
        await until(lambda: rounds_seen_by(other).get(one.peer_id) == 1)
        one.update(RecordUpdate(loss=2.0))
        await one.publish(urgent=False)
        await asyncio.sleep(0.3)
        assert losses_seen_by(other)[one.peer_id] is None
        await other.gossip.pull()
        assert losses_seen_by(other)[one.peer_id] == 2.0


async def test_a_peer_that_is_told_anyway_is_not_told_twice(stations, make_manifest, monkeypatch) -> None:
    """Those who are all connected to one another pass nothing on."""
    manifest = make_manifest()
    async with stations(3, manifest) as peers, members_at(peers, manifest) as members:
        for _ in range(2):
            for member in members:
                await member.publish()
                await member.gossip.pull()
        await asyncio.sleep(0.3)
        told: list[str] = []
        for member in members:
            tell_one = member.gossip._tell

            async def note(peer_id, message, *rest, tell_one=tell_one) -> None:
                told.append(peer_id)
                await tell_one(peer_id, message, *rest)

            monkeypatch.setattr(member.gossip, "_tell", note)
        members[0].update(RecordUpdate(round=1))
        await members[0].publish()
        await asyncio.sleep(0.3)
        assert sorted(told) == sorted(member.peer_id for member in members[1:])


async def test_some_are_told_where_many_are(stations, make_manifest, monkeypatch) -> None:
    """Voters and mates come first; the others hear of it all the same, by those who were told."""
    monkeypatch.setattr(gossip, "ALL_MAX", 2)
    monkeypatch.setattr(gossip, "SOME", 1)
    manifest = make_manifest()
    async with stations(4, manifest) as peers, members_at(peers, manifest) as members:
        first, *others = members
        for _ in range(3):
            for member in members:
                await member.publish()
                await member.gossip.pull()
        first.attendance.ended([others[1].peer_id], [others[1].peer_id])
        for number in range(1, 4):
            first.update(RecordUpdate(round=number))
            await first.publish()
            assert first.gossip._own_told == {others[1].peer_id}
            for each in others:
                await until(lambda each=each, said=number: rounds_seen_by(each)[first.peer_id] == said)


async def test_strangers_news_is_not_multiplied_without_end(stations, make_manifest, monkeypatch) -> None:
    """So much of what those say is passed on who are no voters and no mates; the rest waits to be pulled."""
    monkeypatch.setattr(gossip, "OTHERS_AT_ONCE", 3.0)
    monkeypatch.setattr(gossip, "OTHERS_RATE", 0.0)
    manifest, keys = make_manifest(), fresh_keys(10)
    async with (
        stations(2, manifest) as peers,
        members_at(peers, manifest) as members,
        stranger_beside(peers[0].address) as p2p,
    ):
        for member in members:
            keep_own(member)
            await member.gossip.pull()
        for key in keys:
            await tell(p2p, peers[0].address, signed_record(manifest, key), urgent=True)
        await until(lambda: len(members[1].records) == 2 + 3)
        await asyncio.sleep(0.3)
        assert (len(members[0].records), len(members[1].records)) == (2 + 10, 2 + 3)
        assert await members[0].gossip._connected() == [
            members[1].peer_id
        ]  # who has no record is told nothing
        await members[1].gossip.pull()
        assert len(members[1].records) == 2 + 10


async def test_a_peer_that_nobody_can_call_hears_and_is_heard_by_asking(stations, make_manifest) -> None:
    """It answers nothing itself."""
    manifest = make_manifest()
    async with stations(3, manifest) as peers, members_at(peers[:2], manifest) as members:
        client = Membership(manifest, peers[2].p2p, peers[2].key)
        client.update(
            RecordUpdate(role="oracle", state="training", round=5, swarm_tokens=0, state_digest="a" * 64)
        )
        for member in members:
            await member.publish()
        for number in (5, 6):
            client.update(RecordUpdate(round=number))
            await client.publish()
            await client.gossip.pull()
            assert len(rounds_seen_by(client)) == 3
            assert [rounds_seen_by(each).get(client.peer_id) for each in members] == [number] * 2


async def test_a_newcomer_knows_everybody_at_once(stations, make_manifest, monkeypatch) -> None:
    """Also where an answer has room for one record; one that is gone holds up nobody."""
    monkeypatch.setattr(gossip, "REPLY_BYTES", 1500)
    monkeypatch.setattr(gossip, "FIRST_ANSWER_SECONDS", 8.0)  # for a busy machine
    manifest, keys = make_manifest(), fresh_keys(12)
    async with stations(2, manifest) as peers, members_at(peers[:1], manifest) as [first]:
        first.records.take(signed_record(manifest, key) for key in keys)
        met = [id_of(fresh_key()), first.peer_id]
        newcomer = Membership(manifest, peers[1].p2p, peers[1].key, lambda: met)
        await newcomer.gossip.begin()
        await until(lambda: len(newcomer.look().peers) == len(keys))
        assert len(first.gossip._answer_to(Request(b"", {})).pack()) <= gossip.REPLY_BYTES


async def test_whoever_knows_too_many_hears_of_those_first(stations, make_manifest, monkeypatch) -> None:
    """It has no place for others: what it is told of them would push out what it was told before."""
    monkeypatch.setattr(gossip, "RECORDS_MAX", 3)
    manifest, keys = make_manifest(), fresh_keys(20)
    async with stations(1, manifest) as peers, members_at(peers, manifest) as [member]:
        member.records.take(signed_record(manifest, key) for key in keys)
        known = {each.name: each.data for each in list(member.records)[:3]}
        told = member.gossip._answer_to(Request(b"", dict.fromkeys(known, 0.0))).records
        assert (set(told[:3]), len(told)) == ({*known.values()}, len(keys))


async def test_records_are_pulled_in_the_background(stations, make_manifest, monkeypatch) -> None:
    """It needs nobody to ask for it, and survives a partner that is gone."""
    monkeypatch.setattr(gossip, "PULL_SECONDS", 0.2)
    manifest = make_manifest()
    async with (
        stations(3, manifest) as peers,
        members_at(peers, manifest) as members,
        AsyncExitStack() as asking,
    ):
        gone = id_of(fresh_key())
        for member in members:
            monkeypatch.setattr(member.gossip, "_met_others", lambda: [gone, members[0].peer_id])
            keep_own(member)
            await asking.enter_async_context(background(member.gossip.pull_forever()))
        await until(lambda: all(len(rounds_seen_by(member)) == 3 for member in members))


async def test_a_peer_that_is_up_to_date_is_told_nothing(stations, make_manifest) -> None:
    """An answer is a few bytes then, and a question sixteen for each record that is known."""
    manifest, keys = make_manifest(), fresh_keys(20)
    async with stations(2, manifest) as peers, members_at(peers, manifest) as [first, other]:
        first.records.take(signed_record(manifest, key) for key in keys)
        await other.gossip.ask(first.peer_id)
        assert len(other.records) == len(keys)
        before = peers[1].p2p.counts
        await other.gossip.ask(first.peer_id)
        after = peers[1].p2p.counts
        assert after.received - before.received < 20
        assert after.sent - before.sent < 16 * len(keys) + 40


async def test_those_met_that_are_gone(stations, make_manifest, monkeypatch) -> None:
    """They are asked only when nobody that was met is connected."""
    manifest, gone = make_manifest(), [id_of(fresh_key()) for _ in range(3)]
    async with stations(2, manifest) as peers, members_at(peers, manifest) as [first, other]:
        monkeypatch.setattr(other.gossip, "_met_others", lambda: [*gone, first.peer_id])
        for _ in range(20):
            assert await other.gossip.partners() == {first.peer_id}
        monkeypatch.setattr(other.gossip, "_met_others", lambda: gone)
        assert (await other.gossip.partners()).issubset(gone)


class OwnRecord:
    """In place of `Records`: there is none of others."""

    def __init__(self) -> None:
        self.own: object = SimpleNamespace(data=b"own")

    def of(self, _: str) -> object:
        """See `Records`."""
        return self.own

    def take(self, _: object) -> list[object]:
        """See `Records`."""
        return []

    def __iter__(self) -> Iterator[object]:
        return iter(())


async def test_a_record_that_is_out_of_date_as_it_arrives() -> None:
    """Whoever was told it, or was asked with it, lacks the newer one, and is told that."""
    records, newer = OwnRecord(), iter([object(), object()])

    async def call(*_: object) -> Answer:
        records.own = next(newer, records.own)
        return Answer((), more=False)

    p2p: Any = SimpleNamespace(peer_id="me", call=call)
    telling = Gossip(p2p, records, met=list, trusted=list, on_change=list)  # type: ignore[arg-type]
    await telling.ask("one")
    await telling._tell("two", Told(b""), telling._own_told)
    assert telling._own_told == set()
    await telling._tell("two", Told(b""), telling._own_told)
    assert telling._own_told == {"two"}


async def test_a_view_follows_at_once_where_it_matters(stations, make_manifest) -> None:
    """Whoever watches sees a change of state in the moment in which it hears of it."""
    manifest = make_manifest()
    views: list[View] = []
    async with stations(2, manifest) as peers, members_at(peers, manifest) as [one, other]:
        await one.publish()
        await other.gossip.pull()
        await other.publish()
        async with background(other.watch_forever(views.append)):
            await asyncio.sleep(0.3)
            began = asyncio.get_running_loop().time()
            one.update(RecordUpdate(round=1))
            await one.publish()
            await until(
                lambda: (one.peer_id, 1) in [(each.peer_id, each.record.round) for each in views[-1].peers]
            )
            assert asyncio.get_running_loop().time() - began < 0.6


def test_messages_travel() -> None:
    """What one peer packs the other reads, as much as there can be; it fits into what its method allows."""
    told = Told(b"record", (b"x" * 8, b"y" * 8), urgent=True)
    assert Told.read(told.pack()) == told
    request = Request(b"own" * 1000, {n.to_bytes(8, "big"): 1.5 * n for n in range(RECORDS_MAX)})
    assert Request.read(request.pack()) == request
    assert len(request.pack()) < Gossip.rpc_records.bounds.request
    answer = Answer((b"one", b"two"), more=True)
    assert Answer.read(answer.pack()) == answer


@pytest.mark.parametrize(
    "message",
    [
        Told(b"x" * (RECORD_BYTES_MAX + 1)),
        Request(b"x" * (RECORD_BYTES_MAX + 1), {}),
        Request(b"", {n.to_bytes(8, "big"): 0.0 for n in range(RECORDS_MAX + 1)}),
        Answer((b"",) * (RECORDS_MAX + 1), more=False),
    ],
    ids=["told", "own", "known", "answer"],
)
def test_messages_of_more_than_there_can_be(message) -> None:
    """Each would cost whoever reads it more than an honest one can."""
    with pytest.raises(ValueError):
        type(message).read(message.pack())


def test_more_names_than_are_told() -> None:
    """They would be passed on by everybody."""
    told = [b"record", b"x" * NAME_BYTES * TOLD_MAX, True]
    assert len(Told.read(msgpack.packb(told)).names) == TOLD_MAX
    with pytest.raises(ValueError):
        Told.read(msgpack.packb([told[0], b"x" * NAME_BYTES * (TOLD_MAX + 1), True]))


@pytest.mark.parametrize("kind", [Told, Request, Answer])
@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x91" * 1000 + b"\x90", b"\x01", b"\x92\x01\x02", b"\x93\xc0\xc0\xc0"]
)
def test_malformed_messages(kind, data) -> None:
    """They are refused whole."""
    with pytest.raises(ValueError):
        kind.read(data)
