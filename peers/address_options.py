"""Where a peer listens, and which addresses it announces: the options of `join`, `bootstrap` and `check`."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import click

from dupt_swarm.errors import UsageError
from peers.options import Decorator, together

PORT = click.IntRange(1, 65535)
NAMES = ("host_maddrs", "host_port", "announce_maddrs", "announce_port", "public_ip")
PARTS = re.compile(
    r"/(?P<host>ip4|ip6|dns4?|dns6)/(?P<name>[^/\s,]+)/(?P<protocol>tcp|udp)/(?P<port>\d+)(?P<rest>/[^\s,]*)?"
)


def address_options(listen: tuple[str, ...]) -> Decorator:
    """``--host-maddrs``, ``--host-port``, ``--announce-maddrs``, ``--announce-port`` and ``--public-ip``.

    The command hands what it gets to `take_addresses`; ``listen`` is where it listens by default.
    """
    return together(
        click.option(
            "--host-maddrs",
            multiple=True,
            metavar="ADDRESS",
            help=f"Multiaddr to listen on. Repeatable. [default: {', '.join(listen)}]",
        ),
        click.option(
            "--host-port", type=PORT, help="Listen on this port, TCP and UDP. [default: as --host-maddrs]"
        ),
        click.option(
            "--announce-maddrs",
            multiple=True,
            metavar="ADDRESS",
            help="Multiaddr at which others find this peer, if a router forwards its port. Repeatable.",
        ),
        click.option(
            "--announce-port", type=PORT, help="Port at --public-ip. [default: the one listened on]"
        ),
        click.option(
            "--public-ip", metavar="IP", help="Public IP of the router that forwards the port to this peer."
        ),
    )


def take_addresses(listen: tuple[str, ...], chosen: dict[str, Any]) -> dict[str, Any]:
    """``chosen`` with the settings ``host_maddrs`` and ``announce_maddrs`` in place of these options.

    Raises:
        UsageError: they contradict one another, or an address is not usable.
    """
    hosts = listening(listen, chosen["host_maddrs"], chosen["host_port"])
    announced, public_ip, port = (chosen[name] for name in ("announce_maddrs", "public_ip", "announce_port"))
    if announced and (public_ip or port):
        raise UsageError("--announce-maddrs has the IP and the port: leave out the other options")
    if port and not public_ip:
        raise UsageError(f"--announce-port {port}: add --public-ip, the IP it belongs to")
    if public_ip:
        announced = at_public_ip(hosts, public_ip, port)
    for address in announced:
        check_announced(address)
    others = {name: value for name, value in chosen.items() if name not in NAMES}
    return others | {"host_maddrs": hosts, "announce_maddrs": announced}


def listening(listen: tuple[str, ...], host_maddrs: tuple[str, ...], port: int | None) -> tuple[str, ...]:
    """Where to listen: at ``host_maddrs``, or else at the addresses ``listen``, on ``port`` if given.

    Raises:
        UsageError: both are given.
    """
    if host_maddrs and port:
        raise UsageError(f"--host-port {port}: put the port into --host-maddrs instead, or leave those out")
    if port is None:
        return host_maddrs or listen
    return tuple(re.sub(r"/(tcp|udp)/\d+", rf"/\1/{port}", address) for address in listen)


def at_public_ip(host_maddrs: tuple[str, ...], public_ip: str, port: int | None) -> tuple[str, ...]:
    """What is listened on, as others find it behind a router with ``public_ip`` that forwards the port.

    Args:
        host_maddrs: where this peer listens.
        public_ip: IPv4 or IPv6.
        port: at the router; None: the same as here.

    Raises:
        UsageError: no IP address that others could call, or no port to name.
    """
    try:
        ip = ipaddress.ip_address(public_ip)
    except ValueError as error:
        raise UsageError(f"--public-ip {public_ip}: write an IP address such as 203.0.113.7") from error
    if ip.is_unspecified or ip.is_loopback:
        raise UsageError(f"--public-ip {public_ip}: nobody outside can dial it; give the router's address")
    found = [match for address in host_maddrs if (match := PARTS.fullmatch(address))]
    told = {
        f"/ip{ip.version}/{ip}/{parts['protocol']}/{port or parts['port']}{parts['rest'] or ''}": None
        for parts in found
    }
    if any(not port and parts["port"] == "0" for parts in found):
        raise UsageError("--public-ip needs a port that stays the same: add --host-port or --announce-port")
    return tuple(told)


def check_announced(address: str) -> None:
    """Refuse what others could not dial.

    Raises:
        UsageError: not an address with a host and a port.
    """
    parts = PARTS.fullmatch(address)
    if parts is None or "/p2p" in (parts["rest"] or ""):
        raise UsageError(
            f"--announce-maddrs {address}: write it like /ip4/203.0.113.7/tcp/4001, without /p2p/…"
        )
    if parts["host"] in ("ip4", "ip6"):
        try:
            ip = ipaddress.ip_address(parts["name"])
        except ValueError as error:
            raise UsageError(f"--announce-maddrs {address}: {error}") from error
        if ip.is_unspecified or f"ip{ip.version}" != parts["host"]:
            raise UsageError(f"--announce-maddrs {address}: not an address that others could dial")
    if not 0 < int(parts["port"]) < 65536:
        raise UsageError(f"--announce-maddrs {address}: name the port; 0 means any and is for listening only")
