"""Which addresses of records are dialled, and how often."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest

from dupt_swarm.network.members import dialling
from dupt_swarm.network.members.dialling import (
    AGAIN_SECONDS,
    DIALS_AT_ONCE,
    LONGEST_SECONDS,
    TOLERATED_AT_HOST,
    WAYS_MAX,
    Dialler,
    network_of,
)
from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import View
from tests.support.clock import Clock
from tests.support.loopback import NOBODY, NOBODY_ID

REFUSED = "connection refused"


def public(number: int, port: int = 1) -> Address:
    return Address(f"/ip4/8.8.{number // 250}.{number % 250 + 1}/tcp/{port}", NOBODY_ID)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """All that was dialled; nobody answers. The network is what these tests must not use."""
    made: list[str] = []

    async def dial(_p2p, text: str) -> str:
        made.append(text)
        return REFUSED

    monkeypatch.setattr(dialling, "dial", dial)
    return made


class NoDaemon:
    """Stands in for a daemon that is connected to nobody."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.unmet: OrderedDict[str, None] = OrderedDict()
        self.peers: list[object] = []

    async def list_peers(self) -> list[object]:
        """See `GuardedP2P`."""
        return self.peers


def lonely_dialler(given: Iterable[object] = (), clock: Callable[[], float] = time.monotonic) -> Dialler:
    return Dialler(NoDaemon(), map(str, given), clock)  # type: ignore[arg-type]


async def dial_all(dialler: Dialler, addresses) -> list[str | None]:
    return await asyncio.gather(*map(dialler.dial, addresses))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("/ip4/8.8.8.8/tcp/1", "public"),
        ("/ip4/192.168.1.2/tcp/1", "local"),
        ("/ip4/100.64.0.1/tcp/1", "local"),
        ("/ip4/169.254.0.1/tcp/1", "local"),
        ("/ip4/127.0.0.1/tcp/1", "loopback"),
        ("/ip6/::1/tcp/1", "loopback"),
        ("/ip6/::ffff:127.0.0.1/tcp/1", "loopback"),
        ("/ip6/2001:4860:4860::8888/tcp/1", "public"),
        ("/ip4/0.0.0.0/tcp/1", "none"),
        ("/ip4/224.0.0.1/tcp/1", "none"),
        ("/ip4/255.255.255.255/tcp/1", "none"),
        ("/dns4/example.org/tcp/1", "name"),
        ("/ip4/8.8.8.8/tcp/1/p2p/QmRe1ay/p2p-circuit", "public"),
        ("nonsense", "name"),
    ],
)
def test_networks(address: str, network: str) -> None:
    """The kinds of networks that an address can be in."""
    assert network_of(Address(address)) == network


async def test_an_address_is_dialled_more_and_more_rarely(calls) -> None:
    """Each failure in a row doubles the time until the next."""
    clock = Clock()
    dialler, times = lonely_dialler(clock=clock), []
    for _ in range(9):
        assert await dial_all(dialler, [public(0)]) == [REFUSED]
        before = clock.now
        while not dialler.may(public(0)):
            clock.now += AGAIN_SECONDS
        times.append(clock.now - before)
    assert times == [min(AGAIN_SECONDS * 2**n, LONGEST_SECONDS) for n in range(9)]
    assert calls == [str(public(0))] * 9


async def test_one_host_is_not_dialled_at_all_its_ports(calls) -> None:
    """A hundred addresses at one host are dialled like a few."""
    dialler = lonely_dialler(clock=Clock())
    await dial_all(dialler, [public(0, port) for port in range(1, 101)])
    assert len(calls) == TOLERATED_AT_HOST + 1
    assert not any(dialler.may(public(0, port)) for port in range(1, 201))
    assert dialler.may(public(1))


async def test_a_network_of_version_6_is_one_host(calls) -> None:
    """Whoever has one address has all that begin alike."""
    dialler = lonely_dialler(clock=Clock())
    ways = [f"/ip6/2001:4860:4860::{number}/tcp/1" for number in range(1, 100)]
    await dial_all(dialler, [Address(way, NOBODY_ID) for way in ways])
    assert len(calls) == TOLERATED_AT_HOST + 1
    assert dialler.may(Address("/ip6/2001:4860:4861::1/tcp/1", NOBODY_ID))


async def test_who_was_met_does_not_forgive_others_at_its_host(calls, monkeypatch) -> None:
    """It is reached again and again, and those who are said to be there are not."""
    dialler = lonely_dialler([public(0)], Clock())
    dialler._p2p.peers = [SimpleNamespace(peer_id=NOBODY_ID, addrs=[public(0).way])]
    await dial_all(dialler, [public(0, port) for port in range(2, 100)])
    assert len(calls) == TOLERATED_AT_HOST + 1

    async def reached(*_: object) -> str:
        return ""

    monkeypatch.setattr(dialling, "dial", reached)
    assert await dialler.dial(public(0)) == ""
    assert not dialler.may(public(0, 100))


async def test_libp2p_leaves_alone_who_was_never_met(calls) -> None:
    """Until it is met; whoever was met once is called wherever else it is said to be."""
    dialler = lonely_dialler(clock=Clock())
    await dialler.dial(public(0))
    assert list(dialler._p2p.unmet) == [NOBODY_ID]
    dialler._p2p.peers = [SimpleNamespace(peer_id=NOBODY_ID, addrs=[public(0).way])]
    await dialler.connected()
    assert not dialler._p2p.unmet
    await dialler.dial(public(1))
    assert calls == [str(public(0)), str(public(1))]
    assert not dialler._p2p.unmet


def test_only_the_last_ways_at_a_host_are_met() -> None:
    """Who calls from ever new ports is not dialled at all of them."""
    ways = [public(0, port) for port in range(1, 100)]
    dialler = lonely_dialler(ways)
    assert list(filter(dialler._is_met, ways)) == ways[-WAYS_MAX:]


def test_what_is_only_looked_up_is_not_remembered() -> None:
    """Asking whether addresses may be dialled takes no memory, and no place of those that were."""
    dialler = lonely_dialler(clock=Clock())
    assert all(map(dialler.may, map(public, range(100))))
    assert dialler._addresses._tries == dialler._hosts._tries == {}


async def test_many_hosts_are_dialled_a_few_at_a_time(calls) -> None:
    """All dials together are bounded, however many hosts records name."""
    clock = Clock()
    dialler = lonely_dialler(clock=clock)
    await dial_all(dialler, map(public, range(200)))
    assert len(calls) == DIALS_AT_ONCE
    clock.now += 1.0
    await dial_all(dialler, map(public, range(200, 400)))
    assert len(calls) == DIALS_AT_ONCE + dialling.DIALS_PER_SECOND
    assert dialler._p2p.refused == {"dial": 400 - len(calls)}


async def test_a_peer_that_tries_too_often_is_not_held_up_for_ever(calls) -> None:
    """What was not dialled uses up nothing of what may be."""
    clock = Clock()
    dialler = lonely_dialler(clock=clock)
    await dial_all(dialler, map(public, range(100)))
    calls.clear()
    for number in range(100):
        clock.now += 0.125
        await dial_all(dialler, [public(1000 + number)])
    assert len(calls) == 50


async def test_those_that_were_met_come_first(calls) -> None:
    """However many others were dialled, a proved address is dialled, as often as it may be by itself."""
    met = list(map(public, range(200)))
    dialler = lonely_dialler(met, Clock())
    await dial_all(dialler, map(public, range(200, 300)))
    calls.clear()
    await dial_all(dialler, met)
    assert calls == list(map(str, met))
    assert not any(map(dialler.may, met))


async def test_who_was_met_at_a_host_does_not_have_all_of_it_dialled(calls) -> None:
    """Its other ports, and other relays there, are dialled like those of strangers."""
    relayed = f"{public(0).way}/p2p/{NOBODY_ID}/p2p-circuit"
    for met in (public(0), Address(relayed, NOBODY_ID)):
        clock = Clock()
        dialler = lonely_dialler([met], clock)
        others = [Address(met.way.replace("/tcp/1", f"/tcp/{port}"), NOBODY_ID) for port in range(2, 100)]
        others += [Address(relayed.replace(NOBODY_ID, f"QmRe1ay{n}"), NOBODY_ID) for n in range(100)]
        calls.clear()
        await dial_all(dialler, others)
        assert len(calls) == TOLERATED_AT_HOST + 1
        assert await dial_all(dialler, [met]) == [REFUSED]
    await dial_all(dialler, [Address(f"/ip4/8.9.{n // 250}.{n % 250}/tcp/1", NOBODY_ID) for n in range(200)])
    assert len(calls) == DIALS_AT_ONCE + 1


def test_a_relay_is_not_where_its_clients_are() -> None:
    """Who was met behind a relay is at this relay's host only by way of a relay."""
    relayed = Address(f"/ip4/8.8.8.8/tcp/1/p2p/{NOBODY_ID}/p2p-circuit", NOBODY_ID)
    dialler = lonely_dialler([relayed])
    assert dialler.is_proved(relayed)
    assert not dialler.is_proved(Address("/ip4/8.8.8.8/tcp/1", NOBODY_ID))


async def test_memory_is_bounded(calls, monkeypatch) -> None:
    """Addresses without end are not remembered without end."""
    monkeypatch.setattr(dialling, "KEPT_MAX", 20)
    monkeypatch.setattr(dialling, "DIALS_AT_ONCE", 1000.0)
    dialler = lonely_dialler(map(public, range(100)), Clock())
    await dial_all(dialler, map(public, range(500)))
    assert len(calls) == 500
    tries = dialler._addresses._tries, dialler._hosts._tries
    assert all(len(kept) <= 20 for kept in (*tries, dialler._proved, dialler._p2p.unmet))


async def test_proved_addresses(stations, make_peer) -> None:
    """Where a peer was met is proved, what it or another peer says besides is not."""
    async with stations(2) as [own, other]:
        dialler = Dialler(own.p2p)
        address = Address.parse(other.address)
        assert await dialler.connected() == frozenset()
        assert not dialler.is_proved(address)
        assert await dialler.dial(address) == ""
        assert dialler.is_proved(address) and dialler.may(address)
        assert not dialler.is_proved(Address(address.way, NOBODY_ID))
        assert await dialler.connected() == {address.peer_id}
        liar = make_peer(NOBODY_ID, addresses=(address.way,))
        braggart = make_peer(address.peer_id, addresses=(address.way, "/ip4/8.8.8.8/tcp/1"))
        [met] = dialler.proved(View(0.0, (liar, braggart))).peers
        assert (met.peer_id, met.record.addresses) == (address.peer_id, (address.way,))


async def test_a_peer_that_calls_meanwhile_proves_nothing(stations) -> None:
    """A dial succeeds at once if the peer is connected already: that says nothing of the address."""
    async with stations(2) as [own, other]:
        dialler = Dialler(own.p2p)
        bystander = Address("/ip4/127.0.0.2/tcp/9", str(other.p2p.peer_id))
        assert await dialler.connected() == frozenset()
        assert await dial(other.p2p, own.address) == ""
        assert await dialler.dial(bystander) == ""
        assert not dialler.is_proved(bystander) and not dialler.may(bystander)
        other_port = Address("/ip4/127.0.0.1/tcp/9", str(other.p2p.peer_id))
        for _ in range(TOLERATED_AT_HOST + 1):
            assert await dialler.dial(other_port) == ""
            assert not dialler.may(other_port)
            other_port = other_port.with_port(other_port.port + 1)
        assert dialler.is_proved(other_port) and not dialler.may(other_port)


async def test_what_the_operator_named(stations) -> None:
    """It is dialled whenever that is wanted, and counts as proved: a name too."""
    async with stations(1) as [own]:
        named = Address.parse(NOBODY)
        dialler = Dialler(own.p2p, [NOBODY, f"/dns4/localhost/tcp/9/p2p/{NOBODY_ID}"])
        for _ in range(3):
            assert await dialler.dial_named(named)  # libp2p itself may wait for a moment
        assert dialler.may(Address("/dns4/localhost/tcp/9", NOBODY_ID))
        assert not dialler.may(Address("/dns4/localhost.local/tcp/9", NOBODY_ID))
