"""Multiaddrs: what they tell, which of a peer's own are worth telling, and by which a swarm is joined."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from multiaddr import Multiaddr  # hivemind's own encodes relays so that p2pd cannot read them

from dupt_swarm.node.record import Reach
from dupt_swarm.node.view import View

TOLD_MAX = 3  # addresses in a record, which has to stay small
TOLD_CHARS_MAX = 320  # of them together: three relayed IPv4 addresses

ADDRESSES_MAX = 3  # to join by

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_FIRST_HOP = re.compile(
    r"/(ip[46]|dns[46]?|dnsaddr)/(?P<host>[^/]+)(/(?P<transport>tcp|udp)/(?P<port>\d{1,5})(?!\d))?"
)


@dataclass(frozen=True)
class Address:
    """A multiaddr of a peer, taken apart. Any text makes one; only `route` and `of_peer` check it.

    Attributes:
        way: how to get there, maybe over relays: ``/ip4/203.0.113.7/tcp/4001``.
        peer_id: the peer that it leads to; empty if that is not said.
    """

    way: str
    peer_id: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take ``text`` apart: its last peer is meant, those before it are relays on the way."""
        way, separator, peer_id = text.rpartition("/p2p/")
        return cls(way, peer_id) if separator and peer_id and "/" not in peer_id else cls(text)

    @classmethod
    def of_peer(cls, text: str) -> Address:
        """As `parse`, but it must lead to a peer.

        Raises:
            ValueError: it does not end in a peer id.
        """
        address = cls.parse(text)
        if not address.way or not address.peer_id:
            raise ValueError(f"{text}: not a multiaddr that ends in /p2p/<peer id>")
        return address

    def __str__(self) -> str:
        return f"{self.way}/p2p/{self.peer_id}" if self.peer_id else self.way

    @property
    def route(self) -> Multiaddr:
        """The way, every part of it checked.

        Raises:
            Exception: it is no multiaddr; the library and its codecs each have errors of their own.
        """
        Multiaddr(str(self))
        return Multiaddr(self.way)

    @property
    def relayed(self) -> bool:
        """Whether it leads over a relay."""
        return "/p2p-circuit" in self.way

    @cached_property
    def host(self) -> IPAddress | None:
        """The IP address that it begins with; None if it begins with a name or something else."""
        try:
            return ipaddress.ip_address(self._first_hop["host"]) if self._first_hop else None
        except ValueError:
            return None

    @property
    def network(self) -> str:
        """The /24 (IPv4) or /64 (IPv6) of `host`, for one person may have all of it; else the `hostname`."""
        host = getattr(self.host, "ipv4_mapped", None) or self.host
        if host is None:
            return self.hostname
        return str(ipaddress.ip_network((host, 24 if host.version == 4 else 64), strict=False))

    @property
    def hostname(self) -> str:
        """The IP address or the name that it begins with, as it is written; empty if it is neither."""
        return self._first_hop["host"] if self._first_hop else ""

    @property
    def transport(self) -> str:
        """``tcp`` or ``udp``; empty if it is another."""
        return (self._first_hop["transport"] or "") if self._first_hop else ""

    @property
    def port(self) -> int:
        """Of `transport`; 0 if there is none, or if any will do."""
        return int(self._first_hop["port"] or 0) if self._first_hop else 0

    @property
    def loopback(self) -> bool:
        """Whether only peers on the same machine can use it."""
        return self.host is not None and self.host.is_loopback and not self.relayed

    @property
    def public(self) -> bool:
        """Whether everybody can try it, without a relay: a public IP address, or a name."""
        return (self.host is None or self.host.is_global) and not self.relayed

    def with_host(self, host: IPAddress | str) -> Address:
        """With another IP address of the same version."""
        assert self._first_hop is not None
        start, end = self._first_hop.span("host")
        return replace(self, way=f"{self.way[:start]}{host}{self.way[end:]}")

    def with_port(self, port: int) -> Address:
        """With another port."""
        assert self._first_hop is not None
        start, end = self._first_hop.span("port")
        return replace(self, way=f"{self.way[:start]}{port}{self.way[end:]}")

    @cached_property
    def _first_hop(self) -> re.Match[str] | None:
        return _FIRST_HOP.match(self.way)


def worth_telling(addresses: Iterable[str]) -> tuple[str, ...]:
    """Which of a peer's own addresses go into its record: the best first, without the peer's own id.

    Loopback addresses are told only if there are no others: then all peers are on one machine.
    """
    own = sorted({Address(Address.parse(text).way) for text in addresses}, key=_rank)
    told: list[str] = []
    for address in [each for each in own if not each.loopback][:TOLD_MAX] or own[:TOLD_MAX]:
        if sum(map(len, told)) + len(address.way) <= TOLD_CHARS_MAX:
            told.append(address.way)
    return tuple(told)


def reach_of(addresses: Iterable[str], *, dialled: bool) -> Reach:
    """How others can call a peer that has ``addresses``; ``dialled``: somebody did so without a relay."""
    if dialled:
        return "direct"
    return "relayed" if any(Address.parse(text).relayed for text in addresses) else "client"


def keep_ports(host_maddrs: Sequence[str], addresses: Iterable[str]) -> tuple[str, ...]:
    """``host_maddrs`` with the ports that were free (from our own ``addresses``) in place of port 0."""
    taken: dict[str, int] = {}
    for own in map(Address.parse, addresses):
        if own.transport and not own.relayed:
            taken.setdefault(own.transport, own.port)
    kept = []
    for address in map(Address.parse, host_maddrs):
        free = address.transport in taken and address.port == 0
        kept.append(str(address.with_port(taken[address.transport]) if free else address))
    return tuple(kept)


def tcp_ports(addresses: Iterable[str]) -> list[int]:
    """The TCP ports of ``addresses``, each once."""
    own = map(Address.parse, addresses)
    return sorted({address.port for address in own if address.transport == "tcp" and not address.relayed})


def own_address(addresses: Iterable[str]) -> str:
    """Of a peer's own addresses, each with its id, the one that most others can reach."""
    every = list(addresses)
    return str(Address(worth_telling(every)[0], Address.parse(every[0]).peer_id))


def join_addresses(initial_peers: Sequence[str], view: View) -> list[str]:
    """An address of each initial peer, at most `ADDRESSES_MAX`; loopback ones only if there are no others.

    The records add addresses of the peers that the operator named, but no other peers: a stranger's
    record must not decide which peer newcomers call first.
    """
    told = {peer.peer_id: peer.record.addresses for peer in view.peers}
    given: dict[str, list[str]] = {}
    for address in map(Address.parse, initial_peers):
        if address.peer_id:
            given.setdefault(address.peer_id, []).append(address.way)
    found = []
    for peer_id, ways in given.items():
        best = worth_telling((*ways, *told.get(peer_id, ())))
        # What the operator gave is known to work, if it is as good as any.
        found += [Address(way, peer_id) for way in [*(way for way in ways if way in best), *best][:1]]
    others = [address for address in found if not address.loopback]
    return list(map(str, (others or found)[:ADDRESSES_MAX]))


def _rank(address: Address) -> tuple[int, bool, str]:
    """Names and public addresses first, then relays, then the local network; TCP before UDP."""
    if address.public:
        kind = 0
    elif address.relayed:
        kind = 1
    else:
        kind = 3 if address.loopback else 2
    return kind, address.transport == "udp", address.way
