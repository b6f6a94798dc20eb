"""Which peers to dial at addresses that others told: a record may name anybody's.

Each peer reads all records, so whatever one makes a peer dial, it makes the whole swarm dial.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Literal, TypeVar

from hivemind.dht.node import DHTNode
from hivemind.p2p import PeerID

from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.limits import Budget
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.node.addresses import Address, IPAddress
from dupt_swarm.node.view import Peer, View

AGAIN_SECONDS = 10.0  # before the same address is dialled again; twice as long after each failure
LONGEST_SECONDS = 1800.0
LONGEST_MET_SECONDS = 60.0  # the way back after a cut
# Peers of one house have one IP address: so many may be gone before it has to wait like an address.
TOLERATED_AT_HOST = 4
DIALS_PER_SECOND, DIALS_AT_ONCE = 4.0, 32.0
KEPT_MAX = 4096
WAYS_MAX = 4  # at which a peer was met lately at one host: TCP and QUIC, for those that call and are called

Network = Literal["public", "local", "loopback", "name", "none"]
Key = TypeVar("Key")
Value = TypeVar("Value")


def _keep(kept: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """As the latest; where there are too many, the oldest goes."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > KEPT_MAX:
        kept.popitem(last=False)


class _Pauses:
    """How often in a row something was tried in vain, and until when it is left alone."""

    def __init__(self, tolerated: int) -> None:
        """``tolerated`` failures cost nothing."""
        self._tolerated = tolerated
        self._tries: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def over(self, what: str, now: float) -> bool:
        """Whether it may be tried again."""
        return what not in self._tries or self._tries[what][1] <= now

    def charge(self, what: str, longest: float, now: float) -> None:
        """Before it is known whether it fails: many may be under way at once."""
        failures, until = self._tries.get(what, (0, now))
        if (doublings := failures - self._tolerated) >= 0:
            until = now + min(AGAIN_SECONDS * 2.0 ** min(doublings, 16), longest)
        _keep(self._tries, what, (failures + 1, until))

    def forget(self, what: str) -> None:
        """It has succeeded."""
        self._tries.pop(what, None)


class Dialler:
    """Dials peers at addresses from records, so that these cannot turn a swarm against a bystander.

    An address is proved when the peer whose it is was connected from or at its host: libp2p checks peer ids.
    Over a relay that proves ways over relays at its host only. It is met if that was at this very port, over
    this very relay: a record may name all others of that host. Addresses that are not met are dialled if they
    are public, or in a network in which this peer is connected to somebody; each host of them, and each
    address, more and more rarely while nobody answers; names never. Together they are few per second.
    """

    def __init__(
        self, p2p: GuardedP2P, given: Iterable[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``given`` are met already: by the operator, or when this peer ran before."""
        self._p2p, self._clock = p2p, clock
        self._proved: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()
        self._addresses, self._hosts = _Pauses(0), _Pauses(TOLERATED_AT_HOST)
        self._networks: set[Network] = set()
        self._budget = Budget(clock())
        for address in map(Address.parse, given):
            self._prove(address.peer_id, address)

    async def connected(self) -> frozenset[str]:
        """Ids of the peers to which this one is connected now; what their connections prove is noted."""
        peers = await self._p2p.list_peers()
        for peer in peers:
            for way in map(Address.parse, map(str, peer.addrs)):
                self._prove(str(peer.peer_id), way)
                self._networks.add(network_of(way))
        if not peers and not self._networks:  # nobody yet: what is here is what there is
            own = map(Address.parse, map(str, await self._p2p.get_visible_maddrs()))
            self._networks |= {network_of(address) for address in own}
        return frozenset(str(peer.peer_id) for peer in peers)

    def is_proved(self, address: Address) -> bool:
        """Whether the peer that ``address`` leads to was seen at its host, or behind its relay's."""
        return (address.peer_id, _place_of(address)) in self._proved

    def proved(self, view: View) -> View:
        """``view`` with none but the proved addresses, and the peers that have some."""
        met = map(self._proved_of, view.peers)
        return replace(view, peers=tuple(peer for peer in met if peer.record.addresses))

    def may(self, address: Address) -> bool:
        """Whether ``address`` may be dialled at all, and it is time again."""
        now = self._clock()
        if not self._addresses.over(str(address), now):
            return False
        if self._is_met(address):
            return True
        network = network_of(address)
        fit = network == "public" or (network in ("local", "loopback") and network in self._networks)
        return fit and self._hosts.over(_host_of(address), now)

    async def dial(self, address: Address) -> str | None:
        """Why the peer at ``address`` cannot be reached, empty if it can; None: it was not dialled now."""
        if not self.may(address):
            return None
        met, host, now = self._is_met(address), _host_of(address), self._clock()
        if not met and not self._budget.take_if_left(1.0, DIALS_PER_SECOND, DIALS_AT_ONCE, now):
            self._p2p.refused["dial"] += 1
            return None
        self._addresses.charge(str(address), LONGEST_MET_SECONDS if met else LONGEST_SECONDS, now)
        if not met:
            self._hosts.charge(host, LONGEST_SECONDS, now)
            self._leave_alone(address.peer_id)
        reason = await dial(self._p2p, str(address))
        if not reason:
            await self.connected()
            # Else it was connected from elsewhere, and nothing was dialled. Of a relay only the host is sure:
            # libp2p takes the connection that it has to the relay, whatever port of it was named.
            if self._is_met(address) or (address.relayed and self.is_proved(address)):
                self._addresses.forget(str(address))
                # One that was met was not charged, and others who are said to be there are not forgiven.
                if not met:
                    self._hosts.forget(host)
        return reason

    async def dial_named(self, address: Address) -> str:
        """As `dial`, at an address that the operator named: whenever that is wanted."""
        return await dial(self._p2p, str(address))

    def _proved_of(self, peer: Peer) -> Peer:
        ways = tuple(way for way in peer.record.addresses if self.is_proved(Address(way, peer.peer_id)))
        return Peer(peer.peer_id, peer.record.model_copy(update={"addresses": ways}))

    def _is_met(self, address: Address) -> bool:
        """Whether its peer was met on just this way."""
        return address.way in self._proved.get((address.peer_id, _place_of(address)), ())

    def _leave_alone(self, peer_id: str) -> None:
        """Until it is met: libp2p keeps its addresses, and would dial them with each call."""
        if not any(met == peer_id for met, _ in self._proved):
            _keep(self._p2p.unmet, peer_id, None)

    def _prove(self, peer_id: str, address: Address) -> None:
        self._p2p.unmet.pop(peer_id, None)
        seen = peer_id, _place_of(address)
        if all(seen):
            others = (way for way in self._proved.get(seen, ()) if way != address.way)
            _keep(self._proved, seen, (*others, address.way)[-WAYS_MAX:])


def network_of(address: Address) -> Network:
    """Where ``address`` leads; ``none``: nowhere, or to many."""
    host = _ip_of(address)
    if host is None:
        return "name"
    if host.is_loopback:
        return "loopback"
    if host.is_unspecified or host.is_multicast or host.is_reserved:
        return "none"
    return "public" if host.is_global else "local"


def _host_of(address: Address) -> str:
    """What is common to all addresses of one house."""
    host = _ip_of(address)
    if host is None:
        return address.hostname
    return str(host if host.version == 4 else ipaddress.ip_network((host, 64), strict=False))


def _place_of(address: Address) -> str:
    """Where its peer is seen on that way: at a host, or behind a relay, which is not at that host."""
    host = _host_of(address)
    return f"{host}/p2p-circuit" if host and address.relayed else host


def _ip_of(address: Address) -> IPAddress | None:
    """The IP address that it begins with, in the shortest version."""
    return getattr(address.host, "ipv4_mapped", None) or address.host


RECONNECT_SECONDS = 4.0
PING_SECONDS = 5.0
# Known peers dialled at once; more when no neighbour is left.
TRIED_AT_ONCE, TRIED_WHEN_LONELY = 3, 10


class Neighbours:
    """Dials the initial peers, and some of the address book, whenever they are not neighbours.

    hivemind's DHT forgets who does not answer, and never asks again: after a cut both halves of a swarm
    would stay apart, and a first peer that comes back would be alone.

    Attributes:
        dialler: knows where peers were met.
    """

    def __init__(
        self, p2p: GuardedP2P, dht: DHTNode, initial_peers: tuple[str, ...], book: AddressBook
    ) -> None:
        self.dialler = Dialler(p2p, (*initial_peers, *book.addresses))
        self._dht = dht
        self._initial, self._book = initial_peers, book
        self._own_id = str(p2p.peer_id)

    def note(self, view: View) -> None:
        """Remember the peers of ``view`` that were met, where they were."""
        self._book.meet(self.dialler.proved(view), self._own_id)

    async def keep_forever(self) -> None:
        """Check regularly which peers are missing."""
        while True:
            with contextlib.suppress(Exception):  # the network may be away for a while
                await self.reconnect()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def reconnect(self) -> None:
        """Dial the missing peers once."""
        connected = {str(peer_id) for peer_id in self._dht.protocol.routing_table.peer_id_to_uid}
        count = TRIED_AT_ONCE if connected else TRIED_WHEN_LONELY
        old = sorted(self._book.peer_ids - connected - {self._own_id})
        known = self._book.of(random.sample(old, min(count, len(old))))
        named = dict.fromkeys(map(Address.parse, self._initial))
        others = dict.fromkeys(each for each in map(Address.parse, known) if each not in named)
        await asyncio.gather(
            *(self._meet(each, self.dialler.dial_named) for each in named if each.peer_id not in connected),
            *(self._meet(each, self.dialler.dial) for each in others),
        )

    async def _meet(self, address: Address, dial: Callable[[Address], Awaitable[str | None]]) -> None:
        if await dial(address) != "":
            return
        peer_id = PeerID.from_base58(address.peer_id)
        async with asyncio.timeout(PING_SECONDS):
            known = await self._dht.protocol.call_ping(peer_id)
        if known is not None:
            # hivemind would exclude a peer from searches for as long again as it was away.
            self._dht.blacklist.register_success(peer_id)
