"""How others reach this peer: directly, over a relay, or not at all; and telling them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hivemind.p2p import P2P, PeerID

from dupt_swarm.errors import UnreachableError
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.daemon import ReachabilitySettings, connect, start_daemon
from dupt_swarm.network.reach.dialback import ADDRESSES_MAX, Answer, DialBack, ask_to_dial
from dupt_swarm.network.reach.relays import choose_relays, known_relays, start_relay
from dupt_swarm.node.addresses import host_of, is_relayed, keep_ports, reach_of, split, worth_telling
from dupt_swarm.node.record import Reach
from dupt_swarm.settings import NodeSettings

ADDRESSES_SECONDS = 10.0
LOST_SECONDS = 60.0
ASKED_MAX = 3
KNOWN_MAX = 12
RESERVE_SECONDS = 10.0
LOOK_SECONDS = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Started:
    """A daemon with what was found out about it.

    Attributes:
        p2p: the daemon, connected to the initial peers that answer.
        dialled: whether others can dial it without a relay.
        reach: how others can call it.
    """

    p2p: P2P
    dialled: bool
    reach: Reach


async def start_reachable(settings: NodeSettings, run_dir: Path, known: Sequence[str] = ()) -> Started:
    """Start the daemon such that others can call it, directly or else over relays.

    Initial peers are asked to dial back, or else those at ``known``. Who cannot be dialled uses them, and
    peers that they know, as relays; who can be dialled at a public address relays for others. If nobody
    is there to ask, it counts as dialled: whoever finds it has done so.

    Raises:
        UsageError: as `start_daemon`.
        NodeError: as `start_daemon`.
    """
    p2p = await start_daemon(settings, run_dir)
    if settings.role == "observer" or all(map(_is_loopback, settings.host_maddrs)):
        return Started(p2p, True, "direct")
    own = await own_addresses(p2p)
    settings = replace(settings, host_maddrs=keep_ports(settings.host_maddrs, own))
    reached = await _connect(p2p, settings.initial_peers) or await _connect(p2p, known[:KNOWN_MAX])
    answers = await _ask(p2p, reached, own)
    if reached and not (answers and all(_could_dial(answer) for answer in answers)):
        candidates = [*reached, *(relay for answer in answers for relay in answer.relays)]
        relays = await choose_relays(p2p, candidates)
        if settings.announce_maddrs:
            logger.warning(
                "nobody can dial %s, which this peer announces; check the address and the router",
                ", ".join(own),
            )
        return await _start_hidden(p2p, replace(settings, initial_peers=tuple(reached)), run_dir, relays)
    announced = settings.announce_maddrs or with_observed(own, answers)
    if any(_is_public(address) for address in announced or own):
        await p2p.shutdown()
        p2p = await start_relay(settings, run_dir, announced)
        await _connect(p2p, reached)
    return Started(p2p, True, "direct")


async def whereabouts(started: Started) -> dict[str, Any]:
    """Fields of the record: how, and at which addresses, others call this peer now."""
    addresses = await own_addresses(started.p2p)
    reach = reach_of(addresses, dialled=started.dialled)
    return {"reach": reach, "addresses": worth_telling(addresses)}


async def tell_whereabouts(started: Started, member: Membership) -> str:
    """Keep them in the record, until a new daemon is needed; says why."""
    lost_at = None
    while lost_at is None or time.monotonic() - lost_at < LOST_SECONDS:
        await asyncio.sleep(ADDRESSES_SECONDS)
        with contextlib.suppress(Exception):  # p2pd may be about to be replaced
            fields = await whereabouts(started)
            member.update(**fields)
            if fields["reach"] == started.reach:
                lost_at = None
            elif lost_at is None:
                lost_at = time.monotonic()
    return "no relay carries calls to this peer any more"


async def open_up(started: Started, member: Membership) -> None:
    """Put whereabouts into the record, and from now on dial back those who ask for it."""
    member.update(**await whereabouts(started))
    await DialBack(started.p2p, lambda: known_relays(member.view)).start()


async def _start_hidden(p2p: P2P, settings: NodeSettings, run_dir: Path, relays: tuple[str, ...]) -> Started:
    """Start the daemon again, to be called over ``relays`` only (and in the local network)."""
    if relays:
        await p2p.shutdown()
        p2p = await start_daemon(settings, run_dir, ReachabilitySettings("private", relays))
        await _connect(p2p, settings.initial_peers)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESERVE_SECONDS):
                while not any(map(is_relayed, await own_addresses(p2p))):
                    await asyncio.sleep(LOOK_SECONDS)
    reach = reach_of(await own_addresses(p2p), dialled=False)
    if reach == "client":
        logger.warning("nobody can call this peer, and it found no relay; it averages as a client")
    return Started(p2p, False, reach)


async def own_addresses(p2p: P2P) -> list[str]:
    """Where this daemon says that it can be dialled."""
    return [str(address) for address in await p2p.get_visible_maddrs(latest=True)]


async def _connect(p2p: P2P, addresses: Sequence[str]) -> list[str]:
    with contextlib.suppress(UnreachableError):  # who needs somebody to be there says so later
        return await connect(p2p, addresses) if addresses else []
    return []


async def _ask(p2p: P2P, reached: Sequence[str], own: Sequence[str]) -> list[Answer]:
    """What those who answer say when asked to dial this peer back."""
    ways = [split(address)[0] for address in own if not _is_loopback(address) and not is_relayed(address)]
    ports = {match.group(1) for way in own if (match := re.match(r"/[^/]+/[^/]+/tcp/(\d+)", way))}
    # Behind a router that forwards the port, only the others know our address.
    asked = [*(f"/ip4/0.0.0.0/tcp/{port}" for port in sorted(ports)), *ways][:ADDRESSES_MAX]
    peers = dict.fromkeys(split(address)[1] for address in reached)
    replies = await asyncio.gather(
        *(ask_to_dial(p2p, PeerID.from_base58(peer), asked) for peer in list(peers)[:ASKED_MAX]),
        return_exceptions=True,
    )
    return [reply for reply in replies if isinstance(reply, Answer)]


def _could_dial(answer: Answer) -> bool:
    return "" in answer.reasons.values()


def with_observed(own: Sequence[str], answers: Sequence[Answer]) -> tuple[str, ...]:
    """Own addresses with the public one that others dialled, if it is not among them; else nothing."""
    for answer in answers:
        host = host_of(f"/ip4/{answer.observed}")
        if host is None or not host.is_global or any(host_of(address) == host for address in own):
            continue
        dialled = [way for way, reason in answer.reasons.items() if not reason and "/0.0.0.0/" in way]
        seen = [way.replace("0.0.0.0", answer.observed) for way in dialled]
        return (*seen, *(split(address)[0] for address in own))
    return ()


def _is_loopback(address: str) -> bool:
    host = host_of(address)
    return host is not None and host.is_loopback


def _is_public(address: str) -> bool:
    host = host_of(address)
    return host is None or host.is_global
