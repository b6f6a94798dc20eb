import asyncio
import json

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import PeerID

from dupt_swarm.errors import NodeError
from dupt_swarm.network import exchange as exchange_module
from dupt_swarm.network.exchange import Exchange, Hello
from dupt_swarm.network.transport import connect
from dupt_swarm.replica.blob import CHUNK_BYTES, Blob

HELLO = Hello(version="1", swarm_id="s-0", manifest="{}", tokenizer_blob="t", state_digest="d")
SECTIONS = [bytes(range(256)) * (CHUNK_BYTES // 256 * 2) + b"end of the anchor", b"velocity" * 1000]


@pytest.fixture(scope="module")
def blob() -> Blob:
    """A blob of two sections and four chunks."""
    return Blob.build({"kind": "test"}, SECTIONS)


class DyingDonor(Exchange):
    """Ends the stream after one chunk."""

    async def rpc_chunks(self, request, context):
        async for chunk in super().rpc_chunks(request, context):
            yield chunk
            return


class LyingDonor(Exchange):
    """Sends one good chunk, and then other bytes."""

    async def rpc_chunks(self, request, context):
        async for chunk in super().rpc_chunks(request, context):
            yield chunk
            yield BytesValue(value=b"lies")


class SilentDonor(Exchange):
    """Never sends anything."""

    async def rpc_chunks(self, request, context):
        del request, context
        await asyncio.Event().wait()
        yield BytesValue()


class FailingDonor(Exchange):
    """Raises an exception instead of an answer."""

    async def rpc_chunks(self, request, context):
        del request, context
        raise RuntimeError("broken")
        yield BytesValue()


class ForgetfulDonor(Exchange):
    """Knows the blob's index, but not its chunks any more."""

    async def rpc_chunks(self, request, context):
        del context
        return
        yield request


for kind in (DyingDonor, LyingDonor, SilentDonor, FailingDonor, ForgetfulDonor):
    kind.__name__ = "Exchange"  # the name under which libp2p finds the handlers


async def open_exchange(kind: type[Exchange], p2p, *blobs: Blob) -> Exchange:
    exchange = kind(p2p)
    await exchange.start()
    if blobs:
        exchange.publish(HELLO, blobs)
    return exchange


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_fetch(stations, blob) -> None:
    """A blob of several chunks is found by its digest and arrives as it was."""

    async def scenario() -> None:
        async with stations(2) as [donor, joiner]:
            await connect(joiner.p2p, [donor.address])
            await open_exchange(Exchange, donor.p2p, Blob.build({}, [b"another"]), blob)
            exchange = Exchange(joiner.p2p)
            index = await exchange.fetch_index(donor.p2p.peer_id, blob.digest)
            fetched = await exchange.fetch(index, [donor.p2p.peer_id], 30)
            assert [bytes(section) for section in fetched.sections] == SECTIONS
            assert fetched.digest == blob.digest
            assert await exchange.hello(donor.p2p.peer_id) == HELLO

    run(scenario())


@pytest.mark.parametrize(
    ("kind", "reason", "got"),
    [
        (DyingDonor, "the donor stopped sending", 1),
        (LyingDonor, "chunk 1 does not have the hash that the index names", 1),
        (SilentDonor, "TimeoutError", 0),
        (FailingDonor, "broken", 0),
        (ForgetfulDonor, "the donor stopped sending", 0),
    ],
)
def test_second_donor_completes(stations, blob, monkeypatch, kind, reason, got) -> None:
    """When a donor dies, lies or falls silent, the next one goes on where it stopped; alone, it is named."""
    monkeypatch.setattr(exchange_module, "SILENCE_SECONDS", 1.0)
    asked: list[list[int]] = []

    class RecordingDonor(Exchange):
        async def rpc_chunks(self, request, context):
            asked.append(json.loads(request.value)["numbers"])
            async for chunk in super().rpc_chunks(request, context):
                yield chunk

    RecordingDonor.__name__ = "Exchange"

    async def scenario() -> None:
        async with stations(3) as [bad, good, joiner]:
            for donor in (bad, good):
                await connect(joiner.p2p, [donor.address])
            await open_exchange(kind, bad.p2p, blob)
            await open_exchange(RecordingDonor, good.p2p, blob)
            exchange = Exchange(joiner.p2p)
            index = await exchange.fetch_index(bad.p2p.peer_id, blob.digest)
            fetched = await exchange.fetch(index, [bad.p2p.peer_id, good.p2p.peer_id], 30)
            assert [bytes(section) for section in fetched.sections] == SECTIONS
            assert asked == [list(range(got, 4))]
            with pytest.raises(NodeError, match=reason) as caught:
                await exchange.fetch(index, [bad.p2p.peer_id], 30)
            assert f"{bad.p2p.peer_id}: " in str(caught.value)

    run(scenario())


def test_donor_that_is_gone(stations, blob) -> None:
    """A donor whose machine vanished is passed over."""

    async def scenario() -> None:
        async with stations(2) as [donor, joiner]:
            await connect(joiner.p2p, [donor.address])
            await open_exchange(Exchange, donor.p2p, blob)
            gone = PeerID(b"\x12\x20" + bytes(32))
            fetched = await Exchange(joiner.p2p).fetch(blob.index, [gone, donor.p2p.peer_id], 30)
            assert fetched.digest == blob.digest

    run(scenario())


def test_time_is_bounded(stations, blob) -> None:
    """A fetch ends when its time is up, whatever the donors do."""

    async def scenario() -> None:
        async with stations(2) as [donor, joiner]:
            await connect(joiner.p2p, [donor.address])
            await open_exchange(SilentDonor, donor.p2p, blob)
            started = asyncio.get_running_loop().time()
            with pytest.raises(NodeError, match="it will be tried again"):
                await Exchange(joiner.p2p).fetch(blob.index, [donor.p2p.peer_id] * 3, 0.5)
            assert asyncio.get_running_loop().time() - started < 5

    run(scenario())


def test_unknown_digest(stations, blob) -> None:
    """Who does not hold a blob says so; nobody at all is a NodeError; an unready peer has no hello."""

    async def scenario() -> None:
        async with stations(2) as [donor, joiner]:
            await connect(joiner.p2p, [donor.address])
            await open_exchange(Exchange, donor.p2p)
            exchange = Exchange(joiner.p2p)
            with pytest.raises(ValueError, match="does not hold this blob"):
                await exchange.fetch_index(donor.p2p.peer_id, blob.digest)
            with pytest.raises(NodeError, match="the donor stopped sending"):
                await exchange.fetch(blob.index, [donor.p2p.peer_id], 30)
            with pytest.raises(NodeError, match="no peer could give the data"):
                await exchange.fetch(blob.index, [], 30)
            with pytest.raises(ValueError, match="not a hello"):
                await exchange.hello(donor.p2p.peer_id)

    run(scenario())


def test_wrong_index_is_refused(stations, blob) -> None:
    """An index that does not have the digest asked for is refused before it is read."""
    other = Blob.build({}, [b"other"])

    class OtherDonor(Exchange):
        async def rpc_index(self, request, context) -> BytesValue:
            del request, context
            return BytesValue(value=other.index.data)

    OtherDonor.__name__ = "Exchange"

    async def scenario() -> None:
        async with stations(2) as [donor, joiner]:
            await connect(joiner.p2p, [donor.address])
            await open_exchange(OtherDonor, donor.p2p, other)
            with pytest.raises(ValueError, match="the donor sent another blob"):
                await Exchange(joiner.p2p).fetch_index(donor.p2p.peer_id, blob.digest)

    run(scenario())


def test_stalled_downloads_do_not_block_others(stations, monkeypatch) -> None:
    """Peers that ask for a blob and then stop reading do not keep others from fetching it."""
    monkeypatch.setattr(exchange_module, "SILENCE_SECONDS", 5.0)
    large = Blob.build({}, [bytes(12 * CHUNK_BYTES)])

    async def scenario() -> None:
        async with stations(3) as [donor, stalled, joiner]:
            for station in (stalled, joiner):
                await connect(station.p2p, [donor.address])
            await open_exchange(Exchange, donor.p2p, large)
            request = {"digest": large.digest, "numbers": list(range(12))}
            stub = Exchange.get_stub(stalled.p2p, donor.p2p.peer_id)
            streams = [
                await stub.rpc_chunks(BytesValue(value=json.dumps(request).encode())) for _ in range(6)
            ]
            for stream in streams:
                await anext(stream)  # it has begun, and from now on nobody reads
            fetched = await Exchange(joiner.p2p).fetch(large.index, [donor.p2p.peer_id], 30)
            assert fetched.digest == large.digest
            for stream in streams:
                await stream.aclose()

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "chunks"),
    [
        (b'{"digest": "%s", "numbers": [3, 0, 3, 3]}', 2),
        (b'{"digest": "other", "numbers": [0]}', 0),
        (b'{"digest": "%s", "numbers": [4]}', None),
        (b'{"digest": "%s", "numbers": [-1]}', None),
        (b'{"digest": "%s", "numbers": 3}', None),
        (b'{"digest": "%s"}', None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
    ids=range(8),
)
def test_hostile_requests(blob, request_bytes, chunks) -> None:
    """A request gets each chunk once; one that makes no sense gets an error, and harms nothing."""

    async def scenario() -> None:
        exchange = Exchange(None)
        exchange.publish(HELLO, [blob])
        request = BytesValue(value=request_bytes.replace(b"%s", blob.digest.encode()))
        replies = exchange.rpc_chunks(request, None)
        if chunks is None:
            with pytest.raises((ValueError, KeyError, IndexError, TypeError, RecursionError)):
                [reply async for reply in replies]
        else:
            sent = [reply.value async for reply in replies]
            assert sent == [bytes(blob.chunk(number)) for number in (3, 0)][:chunks]

    run(scenario())


def test_publishing_replaces(blob) -> None:
    """Only what was published last is served, while a download under way keeps its blob."""
    other = Blob.build({}, [b"other"])

    async def scenario() -> None:
        exchange = Exchange(None)
        exchange.publish(HELLO, [blob])
        request = BytesValue(value=json.dumps({"digest": blob.digest, "numbers": [0, 3]}).encode())
        under_way = exchange.rpc_chunks(request, None)
        first = await anext(under_way)
        exchange.publish(HELLO, [other])
        rest = [reply.value async for reply in under_way]
        assert [first.value, *rest] == [bytes(blob.chunk(0)), bytes(blob.chunk(3))]
        assert [reply async for reply in exchange.rpc_chunks(request, None)] == []

    run(scenario())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"version": 1}',
        json.dumps({**vars(HELLO), "version": 1}).encode(),
        json.dumps({**vars(HELLO), "manifest": {}}).encode(),
        json.dumps({key: value for key, value in vars(HELLO).items() if key != "swarm_id"}).encode(),
    ],
    ids=range(8),
)
def test_junk_is_no_hello(data) -> None:
    """Bytes that are no hello are a ValueError."""
    with pytest.raises(ValueError, match="not a hello of a dupt_swarm peer"):
        Hello.parse(data)


def test_hello_ignores_what_it_does_not_know() -> None:
    """A hello of a later version, with more fields, is read."""
    assert Hello.parse(json.dumps({**vars(HELLO), "more": 1}).encode()) == HELLO
