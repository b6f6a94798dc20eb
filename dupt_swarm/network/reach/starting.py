"""Starting the libp2p daemon."""

from __future__ import annotations

import socket
from pathlib import Path

from dupt_swarm.errors import NodeError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.admission import build_admission
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.hivemind_internals import expect_cancelled_calls, expect_death, local_p2p_type
from dupt_swarm.node.addresses import Address
from dupt_swarm.settings import NodeSettings

STARTUP_SECONDS = 60  # a daemon can take over 15 s on a slow machine
# hivemind's own let a relay carry 128 KiB in two minutes, or reserve 32 MiB of memory for each connection.
RELAY_FLAGS = {
    "relayDiscovery": False,  # it would take minutes, and look for four relays before it uses one
    "relayBufferSize": 1 << 17,
    "relayTimeLimit": "24h",
    "relayMaxCircuits": 256,
    "relayMaxReservations": 512,
}


async def start_daemon(
    settings: NodeSettings,
    run_dir: Path,
    *,
    announced: tuple[str, ...] = (),
    relaying: bool = False,
    relays: tuple[str, ...] = (),
) -> GuardedP2P:
    """Start ``p2pd`` with its sockets in ``run_dir``.

    Args:
        settings: of this peer.
        run_dir: for sockets.
        announced: addresses to announce in place of those that it listens on.
        relaying: it relays for others.
        relays: addresses, with peer ids, of those that relay for it. With neither, libp2p finds out by itself
            whether others can dial it.

    Raises:
        UsageError: an address cannot be used, or its port is taken.
        NodeError: the daemon does not start.
    """
    for address in settings.host_maddrs:
        check_port_free(address)
    flags = RELAY_FLAGS | {"relayService": settings.relay, "relayDataLimit": settings.relay_bytes}
    local = local_p2p_type(GuardedP2P, run_dir, flags)
    try:
        p2p: GuardedP2P = await local.create(
            host_maddrs=settings.host_maddrs,
            announce_maddrs=announced or settings.announce_maddrs or None,
            identity_path=str(settings.identity_path) if settings.identity_path else None,
            nat_port_map=not all(Address.parse(text).loopback for text in settings.host_maddrs),
            no_listen=settings.role == "observer",
            dht_mode="client" if settings.role == "observer" else "server",
            force_reachability="private" if relays else "public" if relaying else None,
            use_auto_relay=bool(relays),
            trusted_relays=relays or None,
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
