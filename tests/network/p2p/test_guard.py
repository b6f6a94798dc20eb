"""What the gate lets in and what it charges, without a daemon; and streams that are open at the end."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from dupt_swarm.network.host import background
from dupt_swarm.network.p2p import guard
from dupt_swarm.network.p2p.bandwidth import SHORT_BYTES
from dupt_swarm.network.p2p.guard import UPLOAD_DEBT_SECONDS, GuardedP2P
from dupt_swarm.network.p2p.limits import PeerLimits
from dupt_swarm.network.p2p.rpc import BOUNDS, Bounds, CallError, Callers, Refusal
from dupt_swarm.network.p2p.streams import READS_PER_FRAME, FrameReader
from tests.support.loopback import NOBODY_ID

NAME, CALLER = "X.rpc_measured", PeerID.from_base58(NOBODY_ID)
LONGEST = 64  # of a request, and of a reply


class Gate(GuardedP2P):
    """One without a daemon."""

    def __del__(self) -> None:
        """There is nothing to end."""


@pytest.fixture
def p2p() -> GuardedP2P:
    """At a clock that stands still."""
    made = Gate()
    made.limits = PeerLimits(made.refused, lambda: 0.0)
    return made


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bounds]:
    """``declare(callers, calls=3)``: the method that is called."""

    def declare(callers: Callers = Callers.ADMITTED, reply: int = LONGEST, **bounds: Any) -> Bounds:
        monkeypatch.setitem(BOUNDS, NAME, Bounds(LONGEST, reply, callers, **bounds))
        return BOUNDS[NAME]

    return declare


async def call(p2p: GuardedP2P, data: bytes = b"", *, member: bool = True) -> bytes:
    """Of the method, which answers with what it is sent twice."""

    async def answer(data: bytes, _: PeerID) -> bytes:
        return 2 * data

    return await p2p._pass(NAME, data, CALLER, answer, lambda _: member)


async def test_who_may_call(p2p, declare) -> None:
    """Members of a round must be admitted to the swarm besides."""
    declare(Callers.MEMBERS)
    assert await call(p2p, b"x") == b"xx"
    with pytest.raises(CallError) as caught:
        await call(p2p, member=False)
    assert caught.value.refusal is Refusal.NOT_ALLOWED
    p2p.admission = SimpleNamespace(objection=lambda _: "it has no invitation")
    for callers in (Callers.MEMBERS, Callers.ADMITTED):
        declare(callers)
        with pytest.raises(CallError) as caught:
            await call(p2p)
        assert caught.value.refusal is Refusal.NOT_INVITED
    declare(Callers.ANYBODY)
    assert await call(p2p, b"x", member=False) == b"xx"


async def test_what_a_call_costs_its_caller(p2p, declare) -> None:
    """As many calls as it counts for, and its bytes both ways; of one that is too long nothing is read."""
    declare(calls=3)
    await call(p2p, bytes(10))
    account = p2p.limits._accounts[NOBODY_ID]
    assert (account.calls.used, account.bytes.used) == (3, 10 + 20)
    with pytest.raises(CallError) as caught:
        await call(p2p, bytes(LONGEST + 1))
    assert caught.value.refusal is Refusal.TOO_LONG
    assert p2p.refused == {"size": 1}


async def test_strangers_get_nothing_long_while_upload_is_used_up(p2p, declare) -> None:
    """Members do, and what is short."""

    async def take_short(*_: object, **__: object) -> None:
        """There is room for it."""

    p2p.bandwidth.upload = SimpleNamespace(debt_seconds=UPLOAD_DEBT_SECONDS + 1, take_short=take_short)
    declare(reply=SHORT_BYTES + 1)
    with pytest.raises(CallError) as caught:
        await call(p2p, b"x")
    assert caught.value.refusal is Refusal.LATER
    p2p.limits.members = {NOBODY_ID}
    assert await call(p2p, b"x") == b"xx"
    p2p.limits.members = frozenset()
    declare(reply=SHORT_BYTES)
    assert await call(p2p, b"x") == b"xx"


async def test_frames_of_a_caller(p2p, declare, monkeypatch) -> None:
    """Each is counted, and none may be longer than its method says."""
    declare()
    added: list[Any] = []
    read: list[bytes] = []

    async def add(_p2p: P2P, _name: str, handler: object, *, balanced: bool) -> None:
        assert not balanced
        added.append(handler)

    async def handler(_info: object, frames: Any, _writer: object) -> None:
        read.append(await frames.readexactly(LONGEST))
        with pytest.raises(CallError) as caught:
            await frames.readexactly(LONGEST + 1)
        assert caught.value.refusal is Refusal.TOO_LONG

    monkeypatch.setattr(P2P, "add_binary_stream_handler", add)
    await p2p.add_binary_stream_handler(NAME, handler)
    reader = asyncio.StreamReader()
    reader.feed_data(bytes(3 * LONGEST))
    reader.feed_eof()
    writer = SimpleNamespace(write=None, drain=None, close=lambda: None)
    await added[0](SimpleNamespace(peer_id=CALLER), reader, writer)
    assert read == [bytes(LONGEST)]
    assert p2p.limits._accounts[NOBODY_ID].bytes.used == LONGEST


async def test_what_others_answer_is_no_longer_than_it_may_be(p2p, declare, monkeypatch) -> None:
    """Of a call, and of a frame of a stream; what comes of us is counted."""
    bounds = declare()
    reader = asyncio.StreamReader()
    reader.feed_data(bytes(3 * LONGEST))

    async def answer(*_: object) -> bytes:
        return bytes(LONGEST + 2)

    async def opened(*_: object) -> tuple[None, asyncio.StreamReader, None]:
        return None, reader, None

    monkeypatch.setattr(guard, "call_raw_handler", answer)
    monkeypatch.setattr(guard, "open_stream", opened)
    with pytest.raises(CallError) as caught:
        await p2p._ask(CALLER, NAME, bounds, b"x")
    assert caught.value.refusal is Refusal.TOO_LONG
    _, frames, _ = await p2p.call_binary_stream_handler(CALLER, NAME)
    assert await frames.readexactly(LONGEST + 1) == bytes(LONGEST + 1)
    with pytest.raises(CallError) as caught:
        await frames.readexactly(LONGEST + 2)
    assert caught.value.refusal is Refusal.TOO_LONG
    assert p2p.refused == {"size": 2}


async def test_who_was_never_met_is_not_called(p2p, declare) -> None:
    """Until it calls us."""
    bounds = declare()
    p2p.unmet[NOBODY_ID] = None
    with pytest.raises(CallError, match="nobody has met it"):
        await p2p._ask(CALLER, NAME, bounds, b"x")
    with pytest.raises(CallError, match="nobody has met it"):
        await p2p.call_binary_stream_handler(CALLER, NAME)
    await call(p2p)
    assert not p2p.unmet


def late(reason: str) -> CallError:
    """What is raised in a stream that takes too long."""
    return CallError(Refusal.TOO_SLOW, reason)


async def test_only_the_first_frames_are_due() -> None:
    """Whoever has sent them may take its time for the others; whoever has not is waited for no longer."""
    for begun in (True, False):
        reader = asyncio.StreamReader()
        frames = FrameReader(reader, lambda _: None)
        with frames.impatient(1, 0.02, 60.0, late):
            reader.feed_data(bytes(2 * READS_PER_FRAME))
            for _ in range(READS_PER_FRAME if begun else 0):
                await frames.readexactly(1)
            await asyncio.sleep(0.05)
            with nullcontext() if begun else pytest.raises(CallError, match="nothing came"):
                await frames.readexactly(1)


async def test_whoever_was_refused_is_not_waited_for() -> None:
    """It need not hang up first, as it gets nothing that it could lose."""

    def refuse(_: int) -> None:
        raise CallError(Refusal.TOO_LONG)

    frames = FrameReader(asyncio.StreamReader(), refuse)
    with pytest.raises(CallError):
        await frames.readexactly(LONGEST)
    async with asyncio.timeout(5):
        await frames.until_hung_up()


class Busy(ServicerBase):
    """Never comes to read what it is sent."""

    async def rpc_read(
        self, stream: AsyncIterator[BytesValue], context: P2PContext
    ) -> AsyncIterator[BytesValue]:
        del stream, context
        yield await asyncio.Event().wait() and BytesValue()


BOUNDS["Busy.rpc_read"] = Bounds(4096, 4096)


async def requests() -> AsyncIterator[BytesValue]:
    """More than are read ahead."""
    for _ in range(100):
        yield BytesValue()


async def test_a_stream_that_is_open_at_the_end(stations, make_manifest) -> None:
    """It ends with the node, and nothing complains of it."""
    async with stations(2, make_manifest()) as (server, client):
        await Busy().add_p2p_handlers(server.p2p)
        replies = await Busy.get_stub(client.p2p, server.p2p.peer_id).rpc_read(requests())
        async with background(anext(replies)):
            await asyncio.sleep(1.0)
