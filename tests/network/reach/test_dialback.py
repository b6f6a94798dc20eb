import asyncio
import json
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hivemind.p2p import PeerID
from hivemind.utils.multiaddr import Multiaddr

from dupt_swarm.network.p2p.daemon import connect
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.reach.dialback import (
    ADDRESSES_MAX,
    CALLS,
    CALLS_PER_HOST,
    CALLS_SECONDS,
    DialAnswer,
    DialBack,
    DialMessage,
    ask_to_dial,
    greeted,
)

RELAY = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
CALLER = PeerID(b"\x12\x20" + 32 * b"\x01")


class Calls:
    """Stands in for libp2p where a test wants a caller from somewhere else than loopback."""

    def __init__(self, *ways: str) -> None:
        self.ways = ways

    async def list_peers(self) -> list[SimpleNamespace]:
        """The caller's connections."""
        return [SimpleNamespace(peer_id=CALLER, addrs=[Multiaddr(way)]) for way in self.ways]


def dialling(caller: Calls, clock: Callable[[], float] = time.monotonic) -> DialBack:
    """A servicer that tells of no relays, called by ``caller``."""
    return DialBack(caller, list, clock)  # type: ignore[arg-type]


def ask(servicer: DialBack, *addresses: object) -> DialAnswer:
    """What the servicer answers to the caller."""
    request = DialMessage.read(json.dumps({"addresses": addresses}).encode())
    return DialAnswer.read(asyncio.run(servicer.rpc_dial_back(request, str(CALLER))).pack())


async def test_dial_back(stations) -> None:
    """A peer that listens where it says is called there; a port on which nobody listens is told."""
    async with stations(2) as [one, two]:
        await connect(two.p2p, [one.address])
        relay = "/ip4/192.0.2.1/tcp/1/p2p/QmRe1ay"
        await one.p2p.serve(DialBack(one.p2p, lambda: [relay]))
        own, _, _ = two.address.rpartition("/p2p/")
        unspecified = own.replace("127.0.0.1", "0.0.0.0")
        closed, udp = "/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/udp/1/quic-v1"
        answer = await ask_to_dial(two.p2p, one.p2p.peer_id, [own, unspecified, closed, udp])
        assert (answer.observed, answer.relays) == ("127.0.0.1", (relay,))
        assert answer.reasons == {
            own: "",
            unspecified: "",
            closed: "Connect call failed ('127.0.0.1', 1)",
            udp: "not checked: only TCP is",
        }
        with pytest.raises(CallError) as caught:
            await ask_to_dial(one.p2p, two.p2p.peer_id, [])
        assert caught.value.refusal is Refusal.UNREACHABLE


def test_nobody_else_is_dialled() -> None:
    """Only the IP address that the caller comes from is dialled, so that nobody can scan others."""
    servicer = dialling(Calls("/ip4/127.0.0.2/tcp/5"))
    address = "/ip4/127.0.0.1/tcp/1"
    reason = "not checked: calls come from 127.0.0.2, and no other address is dialled"
    assert ask(servicer, address) == DialAnswer(observed="127.0.0.2", reasons={address: reason}, relays=())
    assert ask(servicer, "/dns4/example.org/tcp/1").reasons == {
        "/dns4/example.org/tcp/1": "not checked: not an IP address with a port"
    }


def test_relayed_caller() -> None:
    """Who comes over a relay has no IP address to dial: the relay's is not its own."""
    servicer = dialling(Calls(f"/ip4/127.0.0.2/tcp/5/p2p/{RELAY}/p2p-circuit"))
    answer = ask(servicer, "/ip4/127.0.0.2/tcp/5")
    assert answer.observed == "" and answer.relays == ()
    assert answer.reasons == {"/ip4/127.0.0.2/tcp/5": "not checked: a relay is between the two peers"}


def test_asked_too_often() -> None:
    """Calls are limited for each host and in all, also over relays, and allowed again later."""
    now = 0.0
    caller = Calls("/ip4/127.0.0.1/tcp/5")
    servicer = dialling(caller, lambda: now)
    for _ in range(CALLS_PER_HOST):
        ask(servicer)
    with pytest.raises(CallError, match="asked too often; try again in 60 s"):
        ask(servicer)
    caller.ways = (f"/ip4/127.0.2.1/tcp/5/p2p/{RELAY}/p2p-circuit",)
    for number in range(CALLS_PER_HOST):
        request = DialMessage.read(b'{"addresses": []}')
        asyncio.run(servicer.rpc_dial_back(request, f"QmKey{number}"))
    with pytest.raises(CallError, match="asked too often"):
        ask(servicer)
    for number in range(CALLS - 2 * CALLS_PER_HOST):
        caller.ways = (f"/ip4/127.1.{number}.1/tcp/5",)
        ask(servicer)
    caller.ways = ("/ip4/127.2.2.1/tcp/5",)
    with pytest.raises(CallError, match="asked too often"):
        ask(servicer)
    now = CALLS_SECONDS + 1
    assert ask(servicer).observed == "127.2.2.1"


@pytest.mark.parametrize("flooding", ["/ip4/127.0.1.{}/tcp/5", "/ip4/127.0.{}.1/tcp/5", "/ip6/::1:{}/tcp/5"])
def test_a_few_that_ask_on_and_on(flooding: str) -> None:
    """They leave half of the calls to hosts of networks that have not asked."""
    caller = Calls()
    servicer = dialling(caller, lambda: 0.0)
    refused = 0
    for number in range(2 * CALLS):
        caller.ways = (flooding.format(number % 6 + 1),)
        try:
            ask(servicer)
        except CallError:
            refused += 1
    assert refused == 2 * CALLS - CALLS // 2
    for number in range(CALLS // 2):
        caller.ways = (f"/ip4/127.1.{number}.1/tcp/5",)
        assert ask(servicer).observed


@pytest.mark.parametrize("addresses", [["/ip4/127.0.0.1/tcp/1"] * (ADDRESSES_MAX + 1), ["x" * 200], [1]])
def test_too_many_addresses(addresses: list[object]) -> None:
    """A long list, or what is no address, is refused before anything is dialled."""
    with pytest.raises(ValueError, match="not a DialMessage"):
        ask(dialling(Calls()), *addresses)


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0\r\n"])
async def test_another_program(said: bytes) -> None:
    """A program that does not speak libp2p is not taken for the peer."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reason = await greeted("127.0.0.1", server.sockets[0].getsockname()[1])
    assert reason == "another program answers there"


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"observed": 1, "reasons": {}, "relays": []}'),
        "[" * 10_000,
        json.dumps({"observed": "\ud800", "reasons": {}, "relays": []}),
        json.dumps({"observed": "1" * 2000, "reasons": {}, "relays": []}),
        json.dumps({"observed": "", "reasons": dict.fromkeys(map(str, range(100)), ""), "relays": []}),
        json.dumps({"observed": "", "reasons": {}, "relays": ["/ip4/1.2.3.4/tcp/1"] * 100}),
    ],
    ids=range(10),
)
def test_no_answer(text: str) -> None:
    """Whatever else another peer sends is refused."""
    with pytest.raises(ValueError, match=r"not a DialAnswer|elements"):
        DialAnswer.read(text.encode(errors="surrogatepass"))
