"""What a donor answers, to whom and to how many: exchanges without libp2p."""

import asyncio
import json
from contextlib import ExitStack, aclosing
from types import SimpleNamespace

import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.states import download as download_module
from dupt_swarm.network.states import exchange as exchange_module
from dupt_swarm.network.states.donor import NOT_HELD
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.upload_slots import SLOTS, SMALL_BYTES
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly, Blob

HELLO = Hello(version="1", swarm_id="s-0", manifest="{}", tokenizer_blob="t", state_digest="d")


@pytest.fixture(scope="module")
def blob() -> Blob:
    """A blob of two sections and four chunks."""
    return Blob.build(
        {"kind": "test"}, [bytes(range(256)) * (CHUNK_BYTES // 128) + b"end", b"velocity" * 1000]
    )


def known(*donors: str):
    """The donors of a download, always the same."""

    async def ask() -> list[str]:
        return list(donors)

    return ask


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


class Neighbour(Exchange):
    """An exchange that reaches others of its kind directly, by name, without libp2p."""

    def __init__(self, name: str, others: dict[str, "Neighbour"], bandwidth: Bandwidth | None = None) -> None:
        super().__init__(None, bandwidth)
        self.name, self.others = name, others
        others[name] = self

    async def _ask_chunks(self, donor, digest, numbers):
        request = BytesValue(value=json.dumps({"digest": digest, "numbers": numbers}).encode())
        context = SimpleNamespace(remote_id=self.name)
        async with aclosing(self.others[donor].rpc_chunks(request, context)) as replies:  # type: ignore[type-var]
            async for reply in replies:
                yield reply.value


def test_a_tokenizer_does_not_wait_for_states(blob) -> None:
    """When all slots are taken by downloads of something large, something small is served all the same."""
    large = Blob.build({}, [bytes(SMALL_BYTES + 1)])

    async def scenario() -> None:
        others: dict[str, Neighbour] = {}
        donor = Neighbour("donor", others)
        donor.publish(HELLO, [large, blob])
        with ExitStack() as stack:
            for number in range(SLOTS):
                stack.enter_context(donor._slots.taken_by(number))
            fetched = await Neighbour("a", others).fetch(Assembly(blob.index), known("donor"), 30)
            assert fetched.digest == blob.digest
            with pytest.raises(NodeError, match="donor: it was busy"):
                await Neighbour("b", others).fetch(Assembly(large.index), known("donor"), 0.5)

    run(scenario())


def test_ten_joiners_at_once_share_one_donor(blob, monkeypatch) -> None:
    """All ten get the state from one donor that serves few at a time and keeps to its rate."""
    monkeypatch.setattr(download_module, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(exchange_module, "SMALL_BYTES", 0)
    total = sum(blob.index.sizes)

    async def scenario() -> None:
        others: dict[str, Neighbour] = {}
        donor = Neighbour("donor", others, Bandwidth(upload=3 * total))
        donor.publish(HELLO, [blob])
        joiners = [Neighbour(str(number), others) for number in range(10)]
        most = 0

        def look(_: object) -> None:
            nonlocal most
            most = max(most, len(donor._slots._streams))

        started = asyncio.get_running_loop().time()
        fetched = await asyncio.gather(
            *(joiner.fetch(Assembly(blob.index), known("donor"), 50, look) for joiner in joiners)
        )
        seconds = asyncio.get_running_loop().time() - started
        assert [each.digest for each in fetched] == [blob.digest] * 10
        assert 1 <= most <= SLOTS
        assert seconds >= 1.5  # 10 blobs at 3 blobs a second, after one second's worth at once
        assert not donor._slots._streams

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
        (
            b'{"digest": "%s", "numbers": [' + b"1," * 9 + b",".join(b"%d" % n for n in range(65)) + b"]}",
            None,
        ),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
    ids=range(9),
)
def test_hostile_requests(blob, request_bytes, chunks) -> None:
    """A request gets each chunk once; one that makes no sense gets an error, and harms nothing."""

    async def scenario() -> None:
        exchange = Exchange(None)
        exchange.publish(HELLO, [blob])
        request = BytesValue(value=request_bytes.replace(b"%s", blob.digest.encode()))
        replies = exchange.rpc_chunks(request, SimpleNamespace(remote_id="joiner"))
        if chunks is None:
            with pytest.raises((ValueError, KeyError, IndexError, TypeError, RecursionError)):
                [reply async for reply in replies]
        else:
            sent = [reply.value async for reply in replies]
            assert sent == ([bytes(blob.chunk(number)) for number in (3, 0)] if chunks else [NOT_HELD])

    run(scenario())


def test_publishing_replaces(blob) -> None:
    """What was published last is served, and what was asked for before that."""
    unwanted, other = Blob.build({}, [b"unwanted"]), Blob.build({}, [b"other"])

    async def scenario() -> None:
        exchange = Exchange(None)
        exchange.publish(HELLO, [blob, unwanted])

        async def chunks(wanted: Blob, numbers: list[int]) -> list[bytes]:
            request = BytesValue(value=json.dumps({"digest": wanted.digest, "numbers": numbers}).encode())
            replies = exchange.rpc_chunks(request, SimpleNamespace(remote_id="joiner"))
            return [reply.value async for reply in replies]

        assert await chunks(blob, [0]) == [bytes(blob.chunk(0))]
        exchange.publish(HELLO, [other])
        assert await chunks(blob, [3]) == [bytes(blob.chunk(3))]
        assert await chunks(other, [0]) == [b"other"]
        assert await chunks(unwanted, [0]) == [NOT_HELD]

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
        json.dumps({**vars(HELLO), "manifest": "\ud800"}).encode(),  # half of a character
        b"[" * 10_000,
        b'{"version": ' + b"[" * 500 + b"]" * 500 + b"}",
    ],
    ids=range(11),
)
def test_junk_is_no_hello(data) -> None:
    """Bytes that are no hello are a ValueError."""
    with pytest.raises(ValueError, match="not a hello of a dupt_swarm peer"):
        Hello.parse(data)


def test_hello_ignores_what_it_does_not_know() -> None:
    """A hello of a later version, with more fields, is read."""
    assert Hello.parse(json.dumps({**vars(HELLO), "more": 1}).encode()) == HELLO
