"""What a donor answers, to which peers and to how many: exchanges without libp2p."""

import asyncio
import json
from contextlib import ExitStack

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states import download as download_module
from dupt_swarm.network.states import exchange as exchange_module
from dupt_swarm.network.states.download import always
from dupt_swarm.network.states.exchange import ChunksMessage, Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.serving import SLOTS, SMALL_BYTES
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly, Blob
from tests.support.direct import Direct
from tests.support.hello import hello

HELLO = hello("d")


@pytest.fixture(scope="module")
def blob() -> Blob:
    """A blob of two sections and four chunks."""
    return Blob.build(
        {"kind": "test"}, [bytes(range(256)) * (CHUNK_BYTES // 128) + b"end", b"velocity" * 1000]
    )


class Neighbour(Exchange):
    """An exchange that reaches others of its kind directly, by name, without libp2p."""

    def __init__(self, name: str, others: dict[str, "Neighbour"], bandwidth: Bandwidth | None = None) -> None:
        super().__init__(Direct(name, others, bandwidth))  # type: ignore[arg-type]
        others[name] = self


async def test_a_tokenizer_does_not_wait_for_states(blob) -> None:
    """When all slots are taken by downloads of something large, something small is served all the same."""
    large = Blob.build({}, [bytes(SMALL_BYTES + 1)])
    others: dict[str, Neighbour] = {}
    donor = Neighbour("donor", others)
    donor.publish(HELLO, [large, blob])
    with ExitStack() as stack:
        for number in range(SLOTS):
            stack.enter_context(donor._slots.taken_by(number))
        fetched = await Neighbour("a", others).fetch(Assembly(blob.index), always(["donor"]), 30)
        assert fetched.digest == blob.digest
        with pytest.raises(NodeError, match="donor: it was busy"):
            await Neighbour("b", others).fetch(Assembly(large.index), always(["donor"]), 0.5)


async def test_ten_joiners_at_once_share_one_donor(blob, monkeypatch) -> None:
    """All ten get the state from one donor that serves few at a time and keeps to its rate."""
    monkeypatch.setattr(download_module, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(exchange_module, "SMALL_BYTES", 0)
    total = sum(blob.index.sizes)
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
        *(joiner.fetch(Assembly(blob.index), always(["donor"]), 50, look) for joiner in joiners)
    )
    seconds = asyncio.get_running_loop().time() - started
    assert [each.digest for each in fetched] == [blob.digest] * 10
    assert 1 <= most <= SLOTS
    assert seconds >= 1.5  # 10 blobs at 3 blobs a second, after one second's worth at once
    assert not donor._slots._streams


@pytest.mark.parametrize(
    "request_bytes",
    [
        b'{"digest": "%s", "numbers": [-1]}',
        b'{"digest": "%s", "numbers": 3}',
        b'{"digest": "%s"}',
        b'{"digest": "other", "numbers": [0]}',
        b'{"digest": "%s", "numbers": [' + b",".join(b"%d" % number for number in range(65)) + b"]}",
        b"[" * 100_000,
        b"\xff",
    ],
    ids=range(7),
)
def test_hostile_requests(blob, request_bytes) -> None:
    """Bytes that are no request for chunks are a ValueError, and harm nothing."""
    with pytest.raises(ValueError):
        ChunksMessage.read(request_bytes.replace(b"%s", blob.digest.encode()))


async def chunks(exchange: Exchange, wanted: Blob, *numbers: int) -> list[bytes]:
    """What a joiner is given that asks for these."""
    request = ChunksMessage(digest=wanted.digest, numbers=numbers)
    return [bytes(chunk) async for chunk in exchange.rpc_chunks(request, "joiner")]


async def test_what_is_not_there(blob) -> None:
    """A request gets each chunk once; one for what there is not is refused by the reason."""
    exchange = Neighbour("donor", {})
    exchange.publish(HELLO, [blob])
    assert await chunks(exchange, blob, 3, 0, 3, 3) == [bytes(blob.chunk(3)), bytes(blob.chunk(0))]
    with pytest.raises(CallError) as caught:
        await chunks(exchange, blob, 4)
    assert caught.value.refusal is Refusal.MALFORMED


async def test_publishing_replaces(blob) -> None:
    """What was published last is served, and what was asked for before that."""
    unwanted, other = Blob.build({}, [b"unwanted"]), Blob.build({}, [b"other"])
    exchange = Neighbour("donor", {})
    exchange.publish(HELLO, [blob, unwanted])
    assert await chunks(exchange, blob, 0) == [bytes(blob.chunk(0))]
    exchange.publish(HELLO, [other])
    assert await chunks(exchange, blob, 3) == [bytes(blob.chunk(3))]
    assert await chunks(exchange, other, 0) == [b"other"]
    with pytest.raises(CallError) as caught:
        await chunks(exchange, unwanted, 0)
    assert caught.value.refusal is Refusal.NOT_HELD


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
    with pytest.raises(ValueError, match=r"not a Hello|elements"):
        Hello.read(data)


def test_hello_ignores_what_it_does_not_know() -> None:
    """A hello of a later version, with more fields, is read."""
    assert Hello.read(json.dumps({**vars(HELLO), "more": 1}).encode()) == HELLO
