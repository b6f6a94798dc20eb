"""Multiaddrs as text: whom they lead to, by which way, and which of a peer's own are worth telling."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

from dupt_swarm.node.record import Reach

TOLD_MAX = 3  # addresses in a record, which has to stay small
TOLD_CHARS_MAX = 320  # of them together: three relayed IPv4 addresses


def split(address: str) -> tuple[str, str]:
    """The way to a peer, which may lead over relays, and the peer's id.

    Raises:
        ValueError: it does not end in a peer id.
    """
    # The last peer is meant: those before it are relays on the way.
    way, separator, peer_id = address.rpartition("/p2p/")
    if not way or not separator or not peer_id or "/" in peer_id:
        raise ValueError(f"{address}: not a multiaddr that ends in /p2p/<peer id>")
    return way, peer_id


def is_relayed(address: str) -> bool:
    """Whether a relay carries what is sent there."""
    return "/p2p-circuit" in address


def host_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that ``address`` begins with; None if it begins with a name or something else."""
    match = re.match(r"/ip[46]/([^/]+)", address)
    try:
        return ipaddress.ip_address(match.group(1)) if match else None
    except ValueError:
        return None


def worth_telling(addresses: Iterable[str]) -> tuple[str, ...]:
    """Which of a peer's own addresses go into its record: the best first, without the peer's own id.

    Loopback addresses are told only if there are no others: then all peers are on one machine.
    """
    ways = sorted({split(address)[0] for address in addresses}, key=_rank)
    if any(not _is_loopback(way) for way in ways):
        ways = [way for way in ways if not _is_loopback(way)]
    told: list[str] = []
    for way in ways[:TOLD_MAX]:
        if sum(map(len, told)) + len(way) <= TOLD_CHARS_MAX:
            told.append(way)
    return tuple(told)


def reach_of(addresses: Sequence[str], *, dialled: bool) -> Reach:
    """How others can call a peer that has ``addresses``; ``dialled``: somebody did so without a relay."""
    if dialled:
        return "direct"
    return "relayed" if any(map(is_relayed, addresses)) else "client"


def _is_loopback(way: str) -> bool:
    host = host_of(way)
    return host is not None and host.is_loopback and not is_relayed(way)


def _rank(way: str) -> tuple[int, bool, str]:
    """Names and public addresses first, then relays, then the local network; TCP before UDP."""
    host = host_of(way)
    if is_relayed(way):
        kind = 1
    elif host is None or host.is_global:
        kind = 0
    else:
        kind = 3 if host.is_loopback else 2
    return kind, "/udp/" in way, way


def keep_ports(host_maddrs: Sequence[str], addresses: Sequence[str]) -> tuple[str, ...]:
    """``host_maddrs`` with the ports that were free (from our own ``addresses``) in place of port 0."""
    return tuple(
        address.replace(f"/{protocol}/0", f"/{protocol}/{port}", 1) if port else address
        for address in host_maddrs
        for protocol in ("udp" if "/udp/" in address else "tcp",)
        for port in (_port_of(protocol, addresses),)
    )


def _port_of(protocol: str, addresses: Sequence[str]) -> str:
    for address in addresses:
        match = re.match(rf"/[^/]+/[^/]+/{protocol}/(\d+)", address)
        if match and not is_relayed(address):
            return match.group(1)
    return ""
