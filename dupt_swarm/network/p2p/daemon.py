"""Starting the libp2p daemon, and reaching the swarm through the addresses given."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hivemind.p2p import P2P, PeerID
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure

from dupt_swarm.errors import NodeError, UnreachableError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.admission.building import build_admission
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.hivemind_internals import (
    connect_to,
    expect_cancelled_calls,
    expect_death,
    is_cut_off,
    local_p2p_type,
    memory_of,
)
from dupt_swarm.node.addresses import Address
from dupt_swarm.settings import NodeSettings

STARTUP_SECONDS = 60  # a daemon can take over 15 s on a slow machine
DIAL_SECONDS = 10
PROBE_SECONDS = 2.0
PROBE_ANSWER_SECONDS = 5.0
MEMORY_BYTES_MAX = 2 << 30  # an honest one takes 50 to 200 MB
# hivemind's own let a relay carry 128 KiB in two minutes, or reserve 32 MiB of memory for each connection.
RELAY_FLAGS = {
    "relayDiscovery": False,  # it would take minutes, and look for four relays before it uses one
    "relayBufferSize": 1 << 17,
    "relayTimeLimit": "24h",
    "relayMaxCircuits": 256,
    "relayMaxReservations": 512,
}


@dataclass(frozen=True)
class ReachabilitySettings:
    """How others can reach a daemon.

    Attributes:
        reachability: ``public``: it relays for others; ``private``: it asks ``relays`` to relay for it.
            None: neither, until libp2p finds out by itself.
        relays: addresses with peer ids.
        announced: addresses to announce in place of those that it listens on.
    """

    reachability: Literal["public", "private"] | None = None
    relays: tuple[str, ...] = ()
    announced: tuple[str, ...] = ()


UNKNOWN_REACHABILITY = ReachabilitySettings()


async def start_daemon(
    settings: NodeSettings, run_dir: Path, door: ReachabilitySettings = UNKNOWN_REACHABILITY
) -> P2P:
    """Start ``p2pd`` with its sockets in ``run_dir``.

    Raises:
        UsageError: an address cannot be used, or its port is taken.
        NodeError: the daemon does not start.
    """
    for address in settings.host_maddrs:
        check_port_free(address)
    flags = RELAY_FLAGS | {"relayService": settings.relay, "relayDataLimit": settings.relay_bytes}
    local = local_p2p_type(GuardedP2P, run_dir, flags)
    try:
        p2p = await local.create(
            host_maddrs=settings.host_maddrs,
            announce_maddrs=door.announced or settings.announce_maddrs or None,
            identity_path=str(settings.identity_path) if settings.identity_path else None,
            nat_port_map=not all(Address.parse(text).loopback for text in settings.host_maddrs),
            no_listen=settings.role == "observer",
            dht_mode="client" if settings.role == "observer" else "server",
            force_reachability=door.reachability,
            use_auto_relay=bool(door.relays),
            trusted_relays=door.relays or None,
            startup_timeout=STARTUP_SECONDS,
        )
    except Exception as error:
        raise NodeError(
            f"the libp2p daemon did not start: {error}; check where this peer listens", setting="host_maddrs"
        ) from error
    expect_death(p2p)
    expect_cancelled_calls(p2p)
    if settings.manifest:
        p2p.admission = build_admission(p2p, settings, Manifest.from_bytes(settings.manifest))
    return p2p


async def daemon_failure(p2p: P2P) -> str:
    """Wait until ``p2pd`` is dead, hangs, is not heard or takes too much memory; return which.

    Nothing else notices. It keeps calls that are not whole, of anybody, and no flag bounds them.
    """
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        try:
            async with asyncio.timeout(PROBE_ANSWER_SECONDS):
                await p2p.list_peers()
        except Exception as error:
            return repr(error)
        if is_cut_off(p2p):
            return "nobody reads what it says"
        if (taken := memory_of(p2p)) > MEMORY_BYTES_MAX:
            return f"it takes {taken >> 20} MiB"


async def connect(p2p: P2P, addresses: Sequence[str]) -> list[str]:
    """Dial all addresses at once.

    Returns:
        those that answered.

    Raises:
        UnreachableError: none did; it has the reason of each.
    """
    outcomes = await asyncio.gather(*(dial(p2p, address) for address in addresses))
    reasons = dict(zip(addresses, outcomes, strict=True))
    reached = [address for address, reason in reasons.items() if not reason]
    if not reached:
        raise UnreachableError(reasons)
    return reached


async def dial(p2p: P2P, text: str) -> str:
    """Why the peer at ``text`` cannot be reached, or an empty string if it can."""
    try:
        address = Address.of_peer(text)
        peer_id, route = PeerID.from_base58(address.peer_id), address.route
    except Exception:
        # multiaddr, its codecs and base58 each raise errors of their own
        return "not a multiaddr that ends in /p2p/<peer id>"
    if peer_id == p2p.peer_id:
        return "this peer's own address"
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await connect_to(p2p, peer_id, [route])
    except TimeoutError:
        return f"no answer within {DIAL_SECONDS} s"
    except ControlFailure as error:
        return _last_reason(str(error))
    except (OSError, EOFError) as error:
        return f"the libp2p daemon of this peer is gone ({error})"
    return ""


def _last_reason(message: str) -> str:
    """The end of libp2p's report on a failed dial, such as ``connection refused``."""
    lines = [line.strip(" *") for line in message.splitlines() if line.strip()]
    return re.sub(r"^.*(?:msg=|dial \w+ \S+: )", "", lines[-1]) if lines else message


def check_port_free(address: str) -> None:
    """Refuse a taken TCP port: libp2p would share it silently, and both peers would lose messages.

    Raises:
        UsageError: not a usable address, or taken.
    """
    way = Address.parse(address)
    if way.host is None or not way.transport:
        raise UsageError(f"{address}: write it like /ip4/0.0.0.0/tcp/4001", setting="host_maddrs")
    if way.transport != "tcp" or way.port == 0:
        return
    family = socket.AF_INET if way.host.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(way.host), way.port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{address}: cannot listen there ({reason}); choose another port", setting="host_maddrs"
            ) from error
