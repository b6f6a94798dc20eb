"""Whom to dial at addresses that others told: a record may name anybody's.

Each peer reads all records, so whatever one makes a peer dial, it makes the whole swarm dial.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from hivemind.p2p import P2P

from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.network.p2p.limits import Budget
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import Peer, View

AGAIN_SECONDS = 10.0  # before the same address is dialled again; twice as long after each failure
LONGEST_SECONDS = 1800.0
LONGEST_PROVED_SECONDS = 60.0  # the way back after a cut
# Peers of one house have one IP address: so many may be gone before it has to wait like an address.
TOLERATED_AT_HOST = 4
DIALS_PER_SECOND, DIALS_AT_ONCE = 4.0, 32.0
KEPT_MAX = 4096

Network = Literal["public", "local", "loopback", "name", "none"]


@dataclass
class _Tries:
    """How often in a row it was tried in vain, and until when it is left alone."""

    failures: int = 0
    until: float = 0.0


class Dialler:
    """Dials peers at addresses from records, so that these cannot turn a swarm against a bystander.

    An address is proved when the peer whose it is was connected from or at its host: libp2p checks peer ids.
    Others are dialled if they are public, or in a network in which this peer is connected to somebody; each
    host of them, and each address, more and more rarely while nobody answers; names only when proved.
    All together are few per second.
    """

    def __init__(
        self, p2p: P2P, given: Iterable[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``given`` are proved already: by the operator, or when this peer ran before."""
        self._p2p, self._clock = p2p, clock
        self._proved: OrderedDict[tuple[str, str], bool] = OrderedDict()
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._networks: set[Network] = set()
        self._connected: frozenset[str] = frozenset()
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
        self._connected = frozenset(str(peer.peer_id) for peer in peers)
        return self._connected

    def is_proved(self, address: Address) -> bool:
        """Whether the peer that ``address`` leads to was seen at its host."""
        return (address.peer_id, _host_of(address)) in self._proved

    def proved(self, view: View) -> View:
        """``view`` with none but the proved addresses, and the peers that have some."""
        return View(
            view.time, tuple(peer for peer in map(self._proved_of, view.peers) if peer.record.addresses)
        )

    def may(self, address: Address) -> bool:
        """Whether ``address`` may be dialled at all, and it is time again."""
        network = network_of(address)
        fit = self.is_proved(address) or (
            network not in ("name", "none") and (network == "public" or network in self._networks)
        )
        return fit and self._tries_of(str(address)).until <= self._clock()

    async def dial(self, address: Address) -> str | None:
        """Why the peer at ``address`` cannot be reached, empty if it can; None: it was not dialled now."""
        if not self.may(address):
            return None
        proved, host = self.is_proved(address), self._tries_of(_host_of(address))
        now = self._clock()
        late = not proved and host.until > now
        if late or not self._budget.take(1.0, DIALS_PER_SECOND, DIALS_AT_ONCE, now):
            self._p2p.refused["dial"] += 1
            return None
        self._charge(self._tries_of(str(address)), 0, LONGEST_PROVED_SECONDS if proved else LONGEST_SECONDS)
        if not proved:
            self._charge(host, TOLERATED_AT_HOST, LONGEST_SECONDS)
        reason = await dial(self._p2p, str(address))
        if not reason:
            self._tries_of(str(address)).failures = host.failures = 0
            host.until = 0.0
            if address.peer_id not in self._connected:  # else nothing was dialled
                self._prove(address.peer_id, address)
        return reason

    async def dial_named(self, address: Address) -> str:
        """As `dial`, at an address that the operator named: whenever that is wanted."""
        return await dial(self._p2p, str(address))

    def _proved_of(self, peer: Peer) -> Peer:
        ways = tuple(way for way in peer.record.addresses if self.is_proved(Address(way, peer.peer_id)))
        return Peer(peer.peer_id, peer.record.model_copy(update={"addresses": ways}))

    def _charge(self, tries: _Tries, tolerated: int, longest: float) -> None:
        """Before it is known whether it fails: many may be under way at once."""
        tries.failures += 1
        if (doublings := tries.failures - 1 - tolerated) >= 0:
            tries.until = self._clock() + min(AGAIN_SECONDS * 2.0 ** min(doublings, 16), longest)

    def _tries_of(self, what: str) -> _Tries:
        tries = self._tries.setdefault(what, _Tries())
        self._tries.move_to_end(what)
        if len(self._tries) > KEPT_MAX:
            self._tries.popitem(last=False)
        return tries

    def _prove(self, peer_id: str, address: Address) -> None:
        seen = peer_id, _host_of(address)
        if not all(seen):
            return
        self._proved[seen] = True
        self._proved.move_to_end(seen)
        if len(self._proved) > KEPT_MAX:
            self._proved.popitem(last=False)


def network_of(address: Address) -> Network:
    """Where ``address`` leads; ``none``: nowhere, or to many."""
    host = address.host
    if host is None:
        return "name"
    host = getattr(host, "ipv4_mapped", None) or host
    if host.is_loopback:
        return "loopback"
    if host.is_unspecified or host.is_multicast or host.is_reserved:
        return "none"
    return "public" if host.is_global else "local"


def _host_of(address: Address) -> str:
    """What is common to all addresses of one house."""
    host = address.host
    if host is None:
        return address.hostname
    mapped = getattr(host, "ipv4_mapped", None)
    if mapped is None and host.version == 6:
        return str(ipaddress.ip_network((host, 64), strict=False))
    return str(mapped or host)
