import asyncio
import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hivemind.p2p import PeerID

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p import guard
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.limits import PeerLimits
from dupt_swarm.network.p2p.rpc import CallError, Raw
from dupt_swarm.network.states import exchange as exchange_module
from dupt_swarm.network.states import serving as serving_module
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import (
    INDEX_ELEMENTS_MAX,
    STATES_MAX,
    ChunksMessage,
    Exchange,
    IndexMessage,
    LinksMessage,
)
from dupt_swarm.network.states.serving import UploadSlots
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly, Blob
from dupt_swarm.replica.contribution import CONTRIBUTION
from dupt_swarm.replica.state import KIND
from tests.support.hello import hello

HELLO = hello("d")
SECTIONS = [bytes(range(256)) * (CHUNK_BYTES // 256 * 2) + b"end of the anchor", b"velocity" * 1000]


@pytest.fixture(scope="module")
def blob() -> Blob:
    """A blob of two sections and four chunks."""
    return Blob.build({"kind": "test"}, SECTIONS)


class FailingDonor(Exchange):
    """Raises an exception instead of an answer."""

    @Exchange.rpc_chunks.override
    async def rpc_chunks(self, _request, _caller):
        raise RuntimeError("broken")
        yield b""


class OtherDonor(Exchange):
    """Answers every question for an index with that of another blob."""

    @Exchange.rpc_index.override
    async def rpc_index(self, _request, _caller):
        return Raw(Blob.build({}, [b"other"]).index.data)


class MuteDonor(Exchange):
    """Never answers a question for an index."""

    @Exchange.rpc_index.override
    async def rpc_index(self, _request, _caller):
        await asyncio.Event().wait()


async def open_exchange(kind: type[Exchange], p2p, *blobs: Blob) -> Exchange:
    exchange = kind(p2p)
    await p2p.serve(exchange)
    if blobs:
        exchange.publish(HELLO, blobs)
    return exchange


async def test_fetch(stations, blob) -> None:
    """A blob of several chunks is found by its digest and arrives as it was, from two donors."""
    async with stations(3) as [first, second, joiner]:
        for donor in (first, second):
            await connect(joiner.p2p, [donor.address])
            await open_exchange(Exchange, donor.p2p, Blob.build({}, [b"another"]), blob)
        donors = [first.p2p.peer_id, second.p2p.peer_id]
        exchange = Exchange(joiner.p2p)
        index = await exchange.fetch_index(blob.digest, donors)
        fetched = await exchange.fetch(Assembly(index), always(donors), 30)
        assert [bytes(section) for section in fetched.sections] == SECTIONS
        assert fetched.digest == blob.digest
        heard = await exchange.hello(donors[0])
        assert heard.model_copy(update={"time": "", "states": ""}) == HELLO


async def test_another_donor_completes(stations, blob) -> None:
    """When a donor fails, another gives its chunks; alone, it is named. (All else: `test_download`.)"""
    async with stations(3) as [bad, good, joiner]:
        for donor in (bad, good):
            await connect(joiner.p2p, [donor.address])
        await open_exchange(FailingDonor, bad.p2p, blob)
        exchange = Exchange(joiner.p2p)
        with pytest.raises(NodeError, match="failed") as caught:
            await exchange.fetch(Assembly(blob.index), always([str(bad.p2p.peer_id)]), 30)
        assert f"{bad.p2p.peer_id}: " in str(caught.value)
        assert str(bad.p2p.peer_id) in exchange._avoided
        await open_exchange(Exchange, good.p2p, blob)
        donors = always([str(bad.p2p.peer_id), str(good.p2p.peer_id)])
        fetched = await exchange.fetch(Assembly(blob.index), donors, 30)
        assert [bytes(section) for section in fetched.sections] == SECTIONS


async def test_a_donor_that_is_gone(stations, blob) -> None:
    """A donor whose machine vanished is passed over."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await open_exchange(Exchange, donor.p2p, blob)
        gone = PeerID(b"\x12\x20" + bytes(32)).to_base58()
        exchange = Exchange(joiner.p2p)
        index = await exchange.fetch_index(blob.digest, [gone, str(donor.p2p.peer_id)])
        fetched = await exchange.fetch(Assembly(index), always([gone, str(donor.p2p.peer_id)]), 30)
        assert fetched.digest == blob.digest


async def test_a_donor_that_dies_while_it_sends(stations) -> None:
    """Its daemon is killed in the middle: the other donor gives what it did not."""
    large = Blob.build({}, [os.urandom(24 * CHUNK_BYTES)])
    async with stations(3) as [dying, good, joiner]:
        for donor in (dying, good):
            await connect(joiner.p2p, [donor.address])
            await open_exchange(Exchange, donor.p2p, large)
        exchange, told = Exchange(joiner.p2p), []

        def kill_when_half_done(progress) -> None:
            told.append(progress)
            if 2 * progress.bytes_done > progress.bytes_total and dying.p2p._child.returncode is None:
                dying.p2p._child.kill()

        donors = always([str(dying.p2p.peer_id), str(good.p2p.peer_id)])
        fetched = await exchange.fetch(Assembly(large.index), donors, 50, kill_when_half_done)
        assert bytes(fetched.sections[0]) == bytes(large.sections[0])
        assert told[-1].bytes_done == told[-1].bytes_total == 24 * CHUNK_BYTES


async def test_unknown_digest(stations, blob) -> None:
    """Who does not hold a blob says so; nobody at all is a NodeError; an unready peer has no hello."""
    async with stations(2) as [donor, joiner]:
        await connect(joiner.p2p, [donor.address])
        await open_exchange(Exchange, donor.p2p)
        exchange, peer = Exchange(joiner.p2p), donor.p2p.peer_id
        with pytest.raises(NodeError, match=f"{peer}: the donor does not hold this blob"):
            await exchange.fetch_index(blob.digest, [peer])
        with pytest.raises(NodeError, match="nobody has it"):
            await exchange.fetch_index(blob.digest, [])
        with pytest.raises(NodeError, match=f"{peer}: the donor does not hold this blob"):
            await exchange.fetch(Assembly(blob.index), always([peer]), 30)
        with pytest.raises(NodeError, match="nobody has it"):
            await exchange.fetch(Assembly(blob.index), always([]), 30)
        with pytest.raises(CallError, match="in no swarm yet"):
            await exchange.hello(peer)
        assert peer not in exchange._avoided


@pytest.mark.parametrize("kind", [OtherDonor, MuteDonor])
async def test_the_index_comes_from_whoever_gives_the_right_one(stations, blob, monkeypatch, kind) -> None:
    """A wrong index is refused, silence is not waited for: another donor's index is taken."""
    monkeypatch.setattr(Exchange.rpc_index, "bounds", replace(Exchange.rpc_index.bounds, seconds=3.0))
    async with stations(3) as [bad, good, joiner]:
        for donor in (bad, good):
            await connect(joiner.p2p, [donor.address])
        await open_exchange(kind, bad.p2p)
        await open_exchange(Exchange, good.p2p, blob)
        exchange, peers = Exchange(joiner.p2p), [bad.p2p.peer_id, good.p2p.peer_id]
        assert await exchange.fetch_index(blob.digest, peers) == blob.index
        with pytest.raises(NodeError, match=r"sent another blob|no answer within 3 s"):
            await exchange.fetch_index(blob.digest, peers[:1])
        assert peers[0] in exchange._avoided


async def test_who_only_has_a_record_takes_no_place_of_a_voter(stations, monkeypatch) -> None:
    """Anybody may publish one: such peers hold up neither who is trusted, nor for long each other."""
    monkeypatch.setattr(exchange_module, "SMALL_BYTES", 0)
    monkeypatch.setattr(serving_module, "TURN_SECONDS", 1.0)
    monkeypatch.setattr(serving_module, "ASKING_SECONDS", 60.0)
    large = Blob.build({}, [bytes(12 * CHUNK_BYTES)])
    async with stations(4) as [donor, holding, other, voter]:
        for station in (holding, other, voter):
            await connect(station.p2p, [donor.address])
        serving = await open_exchange(Exchange, donor.p2p, large)
        serving._slots = UploadSlots(1)  # and one more, for who is trusted
        donor.p2p.limits.members = {str(each.p2p.peer_id) for each in (holding, other, voter)}
        donor.p2p.limits.trusted = {str(voter.p2p.peer_id)}
        peer = donor.p2p.peer_id
        stream = holding.p2p.stream(
            peer, Exchange.rpc_chunks, ChunksMessage(digest=large.digest, numbers=tuple(range(12)))
        )
        await anext(stream)
        with pytest.raises(CallError, match="no slot is free"):
            await anext(
                other.p2p.stream(peer, Exchange.rpc_chunks, ChunksMessage(digest=large.digest, numbers=(0,)))
            )
        fetched = await Exchange(voter.p2p).fetch(Assembly(large.index), always([str(peer)]), 30)
        assert fetched.digest == large.digest
        await asyncio.sleep(1.0)
        with pytest.raises(CallError, match="the turn of others"):
            async for _ in stream:
                pass


async def test_stalled_downloads_do_not_block_others(stations, monkeypatch) -> None:
    """A peer that asks and then stops reading keeps nobody from downloading, and is dropped after a while."""
    monkeypatch.setattr(guard, "SEND_SECONDS", 1.0)
    monkeypatch.setattr(exchange_module, "SMALL_BYTES", 0)
    large = Blob.build({}, [bytes(12 * CHUNK_BYTES)])
    async with stations(3) as [donor, stalled, joiner]:
        for station in (stalled, joiner):
            await connect(station.p2p, [donor.address])
        serving = await open_exchange(Exchange, donor.p2p, large)
        request = ChunksMessage(digest=large.digest, numbers=tuple(range(12)))
        peer = donor.p2p.peer_id
        streams = [stalled.p2p.stream(peer, Exchange.rpc_chunks, request) for _ in range(6)]
        for stream in streams:
            with suppress(CallError):  # it has begun, or is refused, and from now on nobody reads
                await anext(stream)
        fetched = await Exchange(joiner.p2p).fetch(
            Assembly(large.index), always([str(donor.p2p.peer_id)]), 30
        )
        assert fetched.digest == large.digest
        while serving._slots._streams:  # until the last of them is dropped; the test's time is limited
            await asyncio.sleep(0.05)
        for stream in streams:
            await stream.aclose()


@pytest.fixture
def alone() -> Exchange:
    """Of a peer without a daemon."""
    p2p: Any = SimpleNamespace(bandwidth=Bandwidth(), limits=PeerLimits(Counter()))
    return Exchange(p2p)


async def test_each_chunk_is_given_once(alone, blob) -> None:
    """However often it is asked for in one request; one that is none is refused."""
    alone.publish(HELLO, [blob])
    given = alone.rpc_chunks(ChunksMessage(digest=blob.digest, numbers=(1, 0, 1, 1)), "a")
    assert [bytes(each) async for each in given] == [bytes(blob.chunk(1)), bytes(blob.chunk(0))]
    count = len(blob.index.chunk_sha256)
    with pytest.raises(CallError, match="no such chunk"):
        await anext(alone.rpc_chunks(ChunksMessage(digest=blob.digest, numbers=(0, count)), "a"))


async def test_states_that_are_told_to_be_known(alone) -> None:
    """Those before are left out where they are many, but for the first: others may know that alone."""
    asked: list[tuple[str, ...]] = []

    async def call(_peer: str, _method: object, message: Any) -> LinksMessage:
        asked.append(message.states)
        return LinksMessage()

    alone._p2p.call = call
    known = [f"{number:064x}" for number in range(STATES_MAX + 9)]
    assert [page.links async for page in alone.links_of("a", known)] == [()]
    assert asked == [(*known[: STATES_MAX - 1], known[-1])]


async def test_who_failed_is_asked_last_for_an_index(alone, blob) -> None:
    """Nobody waits for it where another answers."""
    asked: list[str] = []

    async def call(peer: str, *_: object) -> IndexMessage:
        asked.append(peer)
        return IndexMessage(blob.index)

    alone._p2p.call = call
    alone._avoided.note("bad", useful=False)
    assert await alone.fetch_index(blob.digest, ["bad", "good"]) == blob.index
    assert asked == ["good"]


async def test_who_is_mute_is_not_waited_for(alone, blob, monkeypatch) -> None:
    """The next one is asked soon, and the index is taken from whoever gives it first."""
    monkeypatch.setattr(exchange_module, "NEXT_DONOR_SECONDS", 0.01)

    async def call(peer: str, *_: object) -> IndexMessage:
        await asyncio.sleep(60 if peer == "mute" else 0)
        return IndexMessage(blob.index)

    alone._p2p.call = call
    async with asyncio.timeout(10):
        assert await alone.fetch_index(blob.digest, ["mute", "good"]) == blob.index


def test_contributions_do_not_wait_for_states(alone, monkeypatch) -> None:
    """Nor do files: a round is shorter than the download of a state."""
    monkeypatch.setattr(exchange_module, "SMALL_BYTES", 0)
    state, contribution = (Blob.build({"kind": kind}, [b"x"]) for kind in (KIND, CONTRIBUTION))
    found = [alone._slots_for(each) for each in (state, contribution, None)]
    assert found == [alone._slots, alone._small_slots, alone._file_slots]


def test_an_index_of_too_many_elements() -> None:
    """It is refused before anything of it is built."""
    with pytest.raises(ValueError, match="elements"):
        IndexMessage.read(b"[" * (INDEX_ELEMENTS_MAX + 1))
