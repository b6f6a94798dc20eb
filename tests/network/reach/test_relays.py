import asyncio
import math
from dataclasses import replace

import pytest
from hivemind.p2p import P2P

from dupt_swarm.errors import UsageError
from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.reach import reachability
from dupt_swarm.network.reach.reachability import Verdict, own_addresses, start_reachable
from dupt_swarm.network.reach.relays import (
    TOLD_MAX,
    _read_message,
    bytes_carried,
    choose_relays,
    known_relays,
    limit_of,
    start_relay,
)
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.node.addresses import keep_ports
from dupt_swarm.node.view import View
from dupt_swarm.settings import RELAY_BYTES_MIN, NodeSettings
from tests.support.loopback import free_port

PUBLIC, LOCAL = "/ip4/8.8.8.8/tcp/31330", "/ip4/192.168.1.2/tcp/31330"
CIRCUIT = f"{PUBLIC}/p2p/QmRe1ay/p2p-circuit"


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        (NodeSettings("bootstrap"), RELAY_BYTES_MIN, math.inf),  # and not libp2p's 128 KiB
        (NodeSettings("oracle", relay_bytes=RELAY_BYTES_MIN), RELAY_BYTES_MIN, RELAY_BYTES_MIN),
    ],
    ids=["by itself", "told"],
)
async def test_a_relay_carries_as_much_as_it_is_told(
    tmp_path, settings: NodeSettings, least: float, most: float
) -> None:
    """No circuit carries more bytes than the operator allows, or fewer than peers expect of a relay."""
    way = f"/ip4/127.0.0.1/tcp/{free_port()}"
    relay = await start_relay(replace(settings, host_maddrs=(way,)), tmp_path, ())
    caller = await start_daemon(NodeSettings("observer"), tmp_path)
    try:
        await connect(caller, [f"{way}/p2p/{relay.peer_id}"])
        assert least <= await bytes_carried(caller, relay.peer_id) <= most
    finally:
        await caller.shutdown()
        await relay.shutdown()


async def test_a_peer_that_does_not_want_to_relay(tmp_path, monkeypatch) -> None:
    """A public peer whose operator switched that off carries a few KB, and is chosen by nobody."""

    async def probe(p2p, settings, _initial, _known) -> Verdict:
        return Verdict(
            "public",
            replace(settings, host_maddrs=keep_ports(settings.host_maddrs, await own_addresses(p2p))),
        )

    monkeypatch.setattr(reachability, "probe", probe)  # loopback is not public
    caller = await start_daemon(NodeSettings("observer"), tmp_path)
    settings = NodeSettings("oracle", host_maddrs=("/ip4/0.0.0.0/tcp/0",), relay=False)
    started = await start_reachable(settings, tmp_path)
    try:
        await connect(
            caller, [next(each for each in await own_addresses(started.p2p) if "127.0.0.1" in each)]
        )
        assert started.reach == "direct"
        assert await bytes_carried(caller, started.p2p.peer_id) <= 1 << 17
    finally:
        await caller.shutdown()
        await started.p2p.shutdown()


def test_a_relay_of_no_use() -> None:
    """So few bytes that nobody would choose it are refused, with the remedy."""
    with pytest.raises(UsageError, match="allow more, or do not relay") as caught:
        NodeSettings("oracle", relay_bytes=RELAY_BYTES_MIN - 1)
    assert caught.value.settings == ("relay_bytes", "relay")
    NodeSettings("oracle", relay=False, relay_bytes=0)


async def test_a_peer_that_is_no_relay(stations, tmp_path) -> None:
    """Other peers carry little or nothing, and are not chosen; neither is an address in a local network."""

    async def carried(caller: P2P) -> float:
        settings = NodeSettings("oracle", host_maddrs=("/ip4/127.0.0.1/tcp/0",))
        other = await start_daemon(settings, tmp_path)
        try:
            [address] = await other.get_visible_maddrs()
            await connect(caller, [str(address)])
            return await bytes_carried(caller, other.peer_id)
        finally:
            await other.shutdown()

    async with stations(2) as [one, two]:
        assert await carried(one.p2p) < RELAY_BYTES_MIN
        await connect(one.p2p, [two.address])
        assert await choose_relays(one.p2p, [two.address, f"{CIRCUIT}/p2p/{two.p2p.peer_id}"]) == ()
        assert await choose_relays(one.p2p, ["", "junk", "/dns4/x", f"{PUBLIC}/p2p/x", "/p2p/Qm"]) == ()
        await two.p2p.shutdown()
        assert await bytes_carried(one.p2p, two.p2p.peer_id) == 0


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
    voter = many[-1].peer_id
    told = known_relays(View(0.0, many, voters=frozenset({voter})))
    assert told[0].endswith(f"/p2p/{voter}")  # however many strangers there are
    assert len(set(told)) == TOLD_MAX


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
async def test_the_length_of_an_answer(sent: bytes, message: bytes | None) -> None:
    """It has two bytes at most: a relay that never ends it makes no number of it that grows for ever."""
    reader = asyncio.StreamReader()
    reader.feed_data(sent)
    if message is None:
        with pytest.raises(ValueError, match="not an answer of a relay"):
            await _read_message(reader)
    else:
        assert await _read_message(reader) == message
