import asyncio

import pytest
from hivemind.p2p import P2P

from dupt_swarm.network.p2p.daemon import ReachabilitySettings, connect, start_daemon
from dupt_swarm.network.reach.relays import (
    CARRIES_BYTES_MIN,
    TOLD_MAX,
    _read_message,
    bytes_carried,
    choose_relays,
    known_relays,
    limit_of,
    start_relay,
)
from dupt_swarm.node.view import View
from dupt_swarm.settings import NodeSettings

PUBLIC, LOCAL = "/ip4/8.8.8.8/tcp/31330", "/ip4/192.168.1.2/tcp/31330"
CIRCUIT = f"{PUBLIC}/p2p/QmRe1ay/p2p-circuit"


@pytest.fixture
def test_relay_carries_much(free_port, tmp_path) -> None:
    """A peer that relays does so with the limits that we give, and not with libp2p's 128 KiB."""

    async def scenario() -> None:
        settings = NodeSettings("bootstrap", host_maddrs=(f"/ip4/127.0.0.1/tcp/{free_port}",))
        relay = await start_relay(settings, tmp_path, ())
        caller = await start_daemon(NodeSettings("observer"), tmp_path)
        try:
            await connect(caller, [f"{settings.host_maddrs[0]}/p2p/{relay.peer_id}"])
            assert await bytes_carried(caller, relay.peer_id) >= CARRIES_BYTES_MIN
        finally:
            await caller.shutdown()
            await relay.shutdown()

    asyncio.run(asyncio.wait_for(scenario(), 100))


def test_who_is_no_relay(stations, tmp_path) -> None:
    """Other peers carry little or nothing, and are not chosen; neither is an address in a local network."""

    async def carried(caller: P2P, door: ReachabilitySettings) -> float:
        settings = NodeSettings("oracle", host_maddrs=("/ip4/127.0.0.1/tcp/0",))
        other = await start_daemon(settings, tmp_path, door)
        try:
            [address] = await other.get_visible_maddrs()
            await connect(caller, [str(address)])
            return await bytes_carried(caller, other.peer_id)
        finally:
            await other.shutdown()

    async def scenario() -> None:
        async with stations(2) as [one, two]:
            assert await carried(one.p2p, ReachabilitySettings()) < CARRIES_BYTES_MIN
            await connect(one.p2p, [two.address])
            assert await choose_relays(one.p2p, [two.address, f"{CIRCUIT}/p2p/{two.p2p.peer_id}"]) == ()
            assert await choose_relays(one.p2p, ["", "junk", "/dns4/x", f"{PUBLIC}/p2p/x", "/p2p/Qm"]) == ()
            await two.p2p.shutdown()
            assert await bytes_carried(one.p2p, two.p2p.peer_id) == 0

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_known_relays(make_peer) -> None:
    """Only peers that everybody can dial are told as relays, not more than a few."""
    peers = [
        make_peer("direct", reach="direct", addresses=(LOCAL, PUBLIC)),
        make_peer("local", reach="direct", addresses=(LOCAL,)),
        make_peer("relayed", reach="relayed", addresses=(CIRCUIT,)),
        make_peer("silent"),
    ]
    assert known_relays(View(0.0, tuple(peers))) == (f"{PUBLIC}/p2p/direct",)
    many = tuple(make_peer(str(number), addresses=(PUBLIC,)) for number in range(10))
    assert len(set(known_relays(View(0.0, many)))) == TOLD_MAX


@pytest.mark.parametrize(
    ("answer", "limit"),
    [
        ("0802 2206 0878 10808008 2864", 1 << 17),  # libp2p's default
        ("0802 220d 0880a305 108080808080808002 2864", 1 << 50),
        ("0802 2864", float("inf")),  # no limit
        ("0802 28c801", 0),  # refused
        ("0802 2201 ff 2864", 0),  # garbage
        ("", 0),
    ],
)
def test_limit(answer: str, limit: float) -> None:
    """The limit is read from a relay's answer; who refuses or talks nonsense carries nothing."""
    assert limit_of(bytes.fromhex(answer)) == limit


@pytest.mark.parametrize(
    ("sent", "message"),
    [(b"\x03abc", b"abc"), (b"\x80\x01" + bytes(128), bytes(128)), (b"\xff" * 70_000, None)],
)
def test_the_length_of_an_answer(sent: bytes, message: bytes | None) -> None:
    """It has two bytes at most: a relay that never ends it makes no number of it that grows for ever."""

    async def scenario() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(sent)
        return await _read_message(reader)

    if message is None:
        with pytest.raises(ValueError, match="not an answer of a relay"):
            asyncio.run(scenario())
    else:
        assert asyncio.run(scenario()) == message
