import asyncio
import contextlib
import socket

import pytest
from hivemind.p2p import PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure
from hivemind.proto import p2pd_pb2

from dupt_swarm.errors import NodeError, UnreachableError, UsageError
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.p2p.daemon import connect, daemon_failure, dial
from dupt_swarm.network.reach.starting import check_port_free, start_daemon
from dupt_swarm.settings import NodeSettings
from tests.support.loopback import free_port
from tests.support.signed_records import id_of

# Peers that do not exist, one for each dial: libp2p waits before it dials the same one again.
NOBODY, IMPOSTOR, LOST, RELAYED, LATE = (PeerID(b"\x12\x20" + 32 * bytes([number])) for number in range(5))


@pytest.fixture
def taken_port():
    """A TCP port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_taken_port(taken_port) -> None:
    """A port on which another program listens is refused, on its address and on all addresses."""
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(UsageError, match=r"cannot listen there .*; choose another port"):
            check_port_free(f"/ip4/{host}/tcp/{taken_port}")


def test_free_ports(taken_port) -> None:
    """A free port, any port, and a port of another protocol are fine."""
    check_port_free(f"/ip4/127.0.0.1/tcp/{free_port()}")
    check_port_free("/ip4/127.0.0.1/tcp/0")
    check_port_free(f"/ip4/127.0.0.1/udp/{taken_port}/quic-v1")
    with pytest.raises(UsageError, match="cannot listen there"):
        check_port_free(f"/ip4/127.0.0.1/tcp/{taken_port}/ws")


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:4001", "/ip4/127.0.0.1", "/ip4/127.0.0.1/tcp/x", "/tcp/1"]
)
def test_unusable_host_address(address: str) -> None:
    """What is no address to listen on is refused, with an example of one."""
    with pytest.raises(UsageError, match=r"write it like /ip4/0\.0\.0\.0/tcp/4001"):
        check_port_free(address)


def test_impossible_port() -> None:
    """A port beyond 65535, or an address of another machine, is a usage error too."""
    for address in ("/ip4/127.0.0.1/tcp/70000", "/ip4/192.0.2.1/tcp/4001"):
        with pytest.raises(UsageError, match="cannot listen there"):
            check_port_free(address)


def test_start_checks_the_port(taken_port, tmp_path) -> None:
    """A daemon is not started on a port that is taken."""
    settings = NodeSettings("oracle", host_maddrs=(f"/ip4/127.0.0.1/tcp/{taken_port}",))
    with pytest.raises(UsageError, match="choose another port"):
        asyncio.run(start_daemon(settings, tmp_path))


def test_daemon_that_does_not_start(tmp_path) -> None:
    """An address that libp2p refuses is a NodeError with the remedy, and no socket is left."""
    settings = NodeSettings("oracle", host_maddrs=("/ip4/127.0.0.1/tcp/0/nonsense",))
    with pytest.raises(
        NodeError, match=r"the libp2p daemon did not start: .*; check where this peer listens"
    ):
        asyncio.run(start_daemon(settings, tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_connect(stations) -> None:
    """Those who answer are told; the others do not matter as long as there is one."""
    async with stations(2) as [one, two]:
        nobody = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{NOBODY}"
        assert await connect(one.p2p, [nobody, two.address, "junk"]) == [two.address]


async def test_a_peer_that_was_dialled_a_moment_too_soon(stations, identities, tmp_path) -> None:
    """libp2p does not try again where nobody listened just now; whoever wants to reach it waits for that."""
    way, identity = f"/ip4/127.0.0.1/tcp/{free_port()}", identities[-1]
    address = f"{way}/p2p/{id_of(load_identity(identity))}"
    async with stations(1) as [one]:
        assert await dial(one.p2p, address) == "connection refused"
        settings = NodeSettings("oracle", host_maddrs=(way,), identity_path=identity)
        late = await start_daemon(settings, tmp_path)
        try:
            assert (await dial(one.p2p, address)).endswith("dial backoff")
            assert await connect(one.p2p, [address]) == [address]
        finally:
            await late.shutdown()


async def test_relayed_address(tmp_path) -> None:
    """An address that leads over a relay is dialled over the relay, and reaches the peer behind it."""
    settings = NodeSettings("oracle", host_maddrs=("/ip4/127.0.0.1/tcp/0",))
    relay = await start_daemon(settings, tmp_path, relaying=True)
    [way] = await relay.get_visible_maddrs()
    hidden = await start_daemon(settings, tmp_path, relays=(str(way),))
    caller = await start_daemon(settings, tmp_path)
    try:
        address = f"{way}/p2p-circuit/p2p/{hidden.peer_id}"
        reached: list[str] = []
        while not reached:  # until the relay has reserved a place
            with contextlib.suppress(UnreachableError):
                reached = await connect(caller, [address])
            await asyncio.sleep(0.1)
        found = [peer for peer in await caller.list_peers() if peer.peer_id == hidden.peer_id]
        assert any("/p2p-circuit" in str(peer.addrs[0]) for peer in found)
    finally:
        for p2p in (caller, hidden, relay):
            await p2p.shutdown()


async def test_unreachable_peers(stations) -> None:
    """When nobody answers, each address has its reason, in one line."""
    async with stations(2) as [one, two]:
        route, _, _ = two.address.rpartition("/p2p/")
        nobody = f"/ip4/127.0.0.1/tcp/{free_port()}/p2p/{NOBODY}"
        impostor = f"{route}/p2p/{IMPOSTOR}"  # another peer than the one meant listens there
        relayed = f"{one.address}/p2p-circuit/p2p/{RELAYED}"  # we are its relay, not itself
        garbage = ["", "junk", "/ip4/127.0.0.1/tcp/1", f"/p2p/{LOST}", "/ip4/127.0.0.1/tcp/1/p2p/short"]
        addresses = [nobody, impostor, relayed, one.address, *garbage]
        with pytest.raises(UnreachableError) as caught:
            await connect(one.p2p, addresses)
        reasons = caught.value.reasons
        assert list(reasons) == addresses
        assert reasons[nobody] == "connection refused"
        assert "peer id mismatch" in reasons[impostor]
        assert reasons[one.address] == "this peer's own address"
        assert reasons[relayed] not in ("", "this peer's own address")
        assert [reasons[each] for each in garbage] == ["not a multiaddr that ends in /p2p/<peer id>"] * 5
        assert [reason for reason in reasons.values() if "\n" in reason] == []


async def test_connect_without_daemon(stations) -> None:
    """When our own daemon is gone, that is the reason, and not an exception of another kind."""
    async with stations(2) as [one, two]:
        await one.p2p.shutdown()
        with pytest.raises(UnreachableError) as caught:
            await connect(one.p2p, [two.address])
        assert caught.value.reasons[two.address].startswith("the libp2p daemon of this peer is gone")


async def test_a_stream_that_cannot_be_opened_leaves_no_socket(stations) -> None:
    """The connection to the daemon is closed when there is nobody to open a stream to."""
    async with stations(1) as [station]:
        connector, made = station.p2p._client.control.daemon_connector, []
        connect_to_daemon = connector.open_connection

        async def recorded():
            made.append(await connect_to_daemon())
            return made[-1]

        connector.open_connection = recorded
        with pytest.raises(ControlFailure):
            await station.p2p.call_binary_stream_handler(NOBODY, "Exchange.rpc_chunks")
        [(_, writer)] = made
        assert writer.is_closing()
        await writer.wait_closed()


async def test_an_answer_to_a_call_just_cancelled(stations) -> None:
    """It is dropped: whoever reads the daemon's messages goes on, and the node is not deaf."""
    async with stations(1) as [station]:
        control = station.p2p._client.control
        messages = asyncio.StreamReader()
        reading = asyncio.create_task(control._read_from_persistent_conn(messages))
        call = asyncio.create_task(control.call_unary_handler(LATE, "some protocol", b""))
        while not control._pending_calls:
            await asyncio.sleep(0)
        [call_id] = control._pending_calls
        answer = p2pd_pb2.PersistentConnectionResponse(
            callId=call_id.bytes, callUnaryResponse=p2pd_pb2.CallUnaryResponse(response=b"late")
        ).SerializeToString()
        messages.feed_data(bytes([len(answer)]) + answer)
        call.cancel()
        await asyncio.wait([call, reading], timeout=0.5)
        assert call.cancelled() and not reading.done()
        reading.cancel()


async def test_a_call_that_was_cancelled_is_forgotten(stations) -> None:
    """Whoever calls and hangs up leaves nothing behind at the one that was called."""
    async with stations(2) as [one, two]:
        await connect(one.p2p, [two.address])
        called = asyncio.Event()

        async def never(*_: object) -> bytes:
            called.set()
            await asyncio.sleep(60)
            return b""

        control = two.p2p._client.control
        await control.add_unary_handler("never", never)
        calling = one.p2p._client.control.call_unary_handler(two.p2p.peer_id, "never", b"")
        call = asyncio.create_task(calling)
        await called.wait()
        assert len(control._handler_tasks) == 1
        call.cancel()
        while control._handler_tasks:
            await asyncio.sleep(0.01)


async def test_a_node_that_hears_nothing_is_of_no_use(stations) -> None:
    """When nobody reads the daemon's messages any more, that is a failure of the daemon."""
    async with stations(1) as [station]:
        watching = asyncio.create_task(daemon_failure(station.p2p))
        station.p2p._client.control._read_task.cancel()
        assert await watching == "nobody reads what it says"
