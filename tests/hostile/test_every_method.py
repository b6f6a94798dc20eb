"""Every method that a peer answers, called in its worst shapes at its greatest length, by plain hivemind."""

import asyncio
import contextlib
import gc
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import msgpack
import pytest
import torch
from hivemind.p2p import P2P, P2PHandlerError
from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError

from dupt_swarm.disk.anonymous import anonymous_file
from dupt_swarm.network.host import Host
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.bandwidth import BURST_SECONDS
from dupt_swarm.network.p2p.rpc import ANSWERED, BOUNDS, METHODS, Bounds, Callers, Method, Refusal
from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.service import NodeService
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.commands import Join
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.storage import save_state
from dupt_swarm.settings import NodeSettings
from tests.support.chaos import swarm as chaos
from tests.support.held_loop import assert_not_held, limit_here, seconds_of
from tests.support.loopback import LOOPBACK
from tests.support.stranger import call_raw, stranger_beside

AT_ONCE = 30
TOKENIZER = b"{}"
STREAMS = {"Exchange.rpc_chunks", "Reducers.rpc_aggregate_part"}  # other tests have these
OF_OTHER_SWARMS = {"ByInvitation.rpc_present"}
# Tests of this process may have declared others.
OURS = {name: each for name, each in METHODS.items() if each.handler.__module__.startswith("dupt_swarm.")}
HIVEMINDS = {name for name in BOUNDS if name.startswith(("DHTProtocol.", "Reducers."))}


@pytest.fixture(autouse=True)
def frozen() -> None:
    """What is imported is out of the garbage collector's sight, as in a node's process, and stays so."""
    gc.freeze()


def filled(beginning: bytes, filling: bytes, end: bytes, size: int) -> bytes:
    """At most ``size`` bytes, and as many as there is room for."""
    room = size - len(beginning) - len(end)
    return beginning + filling * (room // len(filling)) + end


def worst_shapes(size: int) -> Iterator[bytes]:
    """What has cost parsers most: JSON, msgpack and protobuf of ``size`` bytes."""
    for filling in (b"[],", b"{},", b"1,", b'"",', b"[[[[]]]],", b"1e9,"):
        yield filled(b'{"a":[', filling, b"0]}", size)
    yield b"[" * size
    yield filled(b'{"round":', b"9", b"}", size)
    yield filled(b'{"round":"', b"\\u0000", b'"}', size)
    yield filled(b'{"promise":"', b"0", b'"}', size)
    yield filled(b'{"states":["%s"' % (b"0" * 64), b',"%s"' % (b"0" * 64), b"]}", size)
    keys = b",".join(b'"%x":1' % number for number in range(size // 12))
    yield b"{" + keys[: max(0, size - 2)] + b"}"
    empty, nested = msgpack.packb([]), msgpack.packb([[[]]])
    for each in (empty, nested, msgpack.packb({}), msgpack.packb(1.5)):
        count = max(0, size - 5) // len(each)
        yield b"\xdd" + count.to_bytes(4, "big") + each * count
    for tag in (b"\x0a\x00", b"\x12\x00", b"\x1a\x00", b"\x22\x02\x08\x01"):  # empty fields, again and again
        yield tag * (size // len(tag))
    yield bytes(size)
    yield b"\xff" * size


@asynccontextmanager
async def first_peer(
    manifest: Any, folder: Path, identity: Path, **more: Any
) -> AsyncIterator[tuple[Any, str]]:
    """The node of a swarm's first peer in this process; its connection, and its address."""
    state = first_state(manifest, [torch.arange(6.0).reshape(2, 3)])
    save_state(state, folder / "replica.safetensors")
    settings = NodeSettings(
        "bootstrap",
        host_maddrs=LOOPBACK,
        identity_path=identity,
        own_folder=folder,
        checkpoint=folder / "replica.safetensors",
        manifest=manifest.canonical_bytes(),
        tokenizer=TOKENIZER,
        **more,
    )
    (folder / "run").mkdir()
    service = NodeService(Host(folder / "run", lambda _: None, lambda: None))
    try:
        joined = await service.execute(Join(settings, anonymous_file(), None))
        yield service._participant.connection, joined.addresses[0]  # type: ignore[attr-defined]
    finally:
        await service.close()


@asynccontextmanager
async def stranger_at_first_peer(
    manifest: Any, folder: Path, identity: Path
) -> AsyncIterator[tuple[Any, P2P, str]]:
    """The connection of a swarm's first peer, and who calls it at the address."""
    async with (
        first_peer(manifest, folder, identity) as (connection, address),
        stranger_beside(address) as p2p,
    ):
        yield connection, p2p, address


@pytest.fixture
def manifest(make_manifest):
    return make_manifest(tokenizer={"sha256": hashlib.sha256(TOKENIZER).hexdigest()})


@pytest.fixture
def everybody_is_a_member(monkeypatch) -> None:
    """What is for members of a round is answered to anybody, so that what they could send comes through."""
    monkeypatch.setattr(Membership, "admits", lambda *_: True)


def calls_of(connection) -> dict[str, Bounds]:
    """The methods that a peer answers, but for streams."""
    served = set(connection.p2p._client.control.unary_handlers)
    assert OURS.keys() | HIVEMINDS == served | STREAMS | OF_OTHER_SWARMS
    return {name: BOUNDS[name] for name in sorted(served)}


def read_or_refuse(read: Callable[[bytes], object], data: bytes) -> None:
    """Whichever it is."""
    with contextlib.suppress(ValueError):
        read(data)


async def answer_of(p2p: P2P, address: str, name: str, data: bytes) -> bytes:
    """The answer, or why there is none: hivemind's own methods refuse by an error."""
    try:
        return await call_raw(p2p, address, name, data)
    except P2PHandlerError as error:
        return str(error).encode()


@pytest.mark.usefixtures("everybody_is_a_member")
async def test_the_worst_shapes(manifest, tmp_path, identities, monkeypatch) -> None:
    """None holds the event loop for long, each has a short answer or a refusal, and the peer goes on."""
    async with stranger_at_first_peer(manifest, tmp_path, identities[0]) as (connection, p2p, address):
        for name, bounds in calls_of(connection).items():
            with assert_not_held(name, monkeypatch):
                for data in worst_shapes(bounds.request):
                    assert len(data) <= bounds.request
                    # Each has cost its caller: a new one comes for the next.
                    connection.p2p.limits._accounts.clear()
                    answer = await answer_of(p2p, address, name, data)
                    assert len(answer) <= bounds.reply + len(ANSWERED), name
        hello = await answer_of(p2p, address, Exchange.rpc_hello.name, b"")
        assert hello.startswith(ANSWERED)


@pytest.mark.parametrize("name", sorted(OURS))
def test_reading(name: str) -> None:
    """No request or reply in its worst shape takes long to be read or refused, in a thread or not."""
    method, longest = METHODS[name], 0.0
    kinds = [(method.request, method.bounds.request)]
    if isinstance(method, Method):
        kinds.append((method.reply, method.bounds.reply))
    for kind, size in kinds:
        for data in worst_shapes(size):
            longest = max(longest, seconds_of(partial(read_or_refuse, kind.read, data)))
    assert longest < limit_here()


@pytest.mark.usefixtures("everybody_is_a_member")
async def test_many_at_once(manifest, tmp_path, identities, monkeypatch) -> None:
    """Thirty calls at once of what takes longest hold the event loop no longer than one does."""
    async with stranger_at_first_peer(manifest, tmp_path, identities[0]) as (connection, p2p, address):
        for name, bounds in calls_of(connection).items():
            data = filled(b'{"a":[', b"[],", b"[]]}", bounds.request)
            with assert_not_held(name, monkeypatch):
                calls = (answer_of(p2p, address, name, data) for _ in range(AT_ONCE))
                await asyncio.gather(*calls)


async def test_what_is_too_long(manifest, tmp_path, identities) -> None:
    """One byte more than a request may have is refused before anything is parsed, as long as it is sent."""
    async with stranger_at_first_peer(manifest, tmp_path, identities[0]) as (connection, p2p, address):
        refused = connection.p2p.refused
        for number, (name, bounds) in enumerate(calls_of(connection).items(), 1):
            connection.p2p.limits._accounts.clear()
            answer = await answer_of(p2p, address, name, bytes(bounds.request + 1))
            assert answer[0] == Refusal.TOO_LONG or b"a message of" in answer
            assert refused == {"size": number}


async def test_what_is_for_members(manifest, tmp_path, identities) -> None:
    """Who has contradicted itself is told so before its bytes are looked at."""
    async with stranger_at_first_peer(manifest, tmp_path, identities[0]) as (connection, p2p, address):
        assert Deciding.rpc_report.bounds.callers is Callers.MEMBERS
        connection.membership.expose(str(p2p.peer_id))
        answer = await answer_of(p2p, address, Deciding.rpc_report.name, b"nonsense")
        assert answer[0] == Refusal.NOT_ALLOWED
        assert connection.p2p.refused == {"contradiction": 1}


async def test_answers_keep_to_the_upload(manifest, tmp_path, identities) -> None:
    """However much strangers ask, of every method, no more is sent than is allowed."""
    rate, seconds = 50_000, 8.0
    async with (
        first_peer(manifest, tmp_path, identities[0], max_upload=float(rate)) as (connection, address),
        stranger_beside(address) as one,
        stranger_beside(address) as two,
    ):
        names = list(calls_of(connection))
        loop = asyncio.get_running_loop()
        began, passed, longest = loop.time(), 0, 0

        async def ask_on(p2p: P2P, name: str, data: bytes) -> None:
            nonlocal passed, longest
            while loop.time() < began + seconds:
                answer = len(await answer_of(p2p, address, name, data))
                passed, longest = passed + answer, max(longest, answer)
                await asyncio.sleep(0.001)

        # Well asked for what is long, and badly, so that it is refused.
        calls = product((one, two), names, (b"", b"\xff" * 64))
        await asyncio.gather(*(ask_on(*call) for call in calls))
        assert passed > rate * BURST_SECONDS, "enough was asked for"
        assert passed <= rate * (loop.time() - began + 2 * BURST_SECONDS) + longest
        assert connection.p2p.counts.sent >= passed


@pytest.mark.usefixtures("nothing_left")
async def test_no_node_is_replaced(tmp_path: Path) -> None:
    """A first peer as it ships answers a stranger's hello at once beside thirty calls of each method."""
    with chaos.first_peer(tmp_path / "first") as peer:
        address, processes = peer.joined()["address"], (peer.node, peer.daemon)
        async with stranger_beside(address) as p2p, stranger_beside(address) as other:
            for name, bounds in BOUNDS.items():
                data = filled(b'{"a":[', b"[],", b"[]]}", bounds.request)
                with contextlib.suppress(P2PDaemonError):  # it answers no such method
                    await asyncio.gather(*(answer_of(p2p, address, name, data) for _ in range(AT_ONCE)))
                hello = await asyncio.wait_for(answer_of(other, address, Exchange.rpc_hello.name, b""), 10)
                assert hello.startswith(ANSWERED), name
        assert (peer.node, peer.daemon) == processes
