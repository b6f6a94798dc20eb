"""Preflight: are our ports free, who answers at which address, and what do they say?"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from dupt_swarm.errors import AdmissionError, ManifestError, NodeError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.admission import build_admission
from dupt_swarm.network.members.identity import with_identity
from dupt_swarm.network.p2p.daemon import dial_all
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.reach.dialback import ask_to_dial
from dupt_swarm.network.reach.reachability import own_addresses
from dupt_swarm.network.reach.starting import check_port_free, start_daemon
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.node.addresses import Address, tcp_ports
from dupt_swarm.node.messages import Answer, Checkup
from dupt_swarm.organiser.invitation import check_invited
from dupt_swarm.settings import LISTEN_EVERYWHERE, NodeSettings


async def preflight(settings: NodeSettings, run_dir: Path) -> Checkup:
    """Start libp2p as a peer with these settings would, and call its initial peers; joins nothing."""
    ports = {address: _port_problem(address) for address in settings.host_maddrs}
    free = tuple(address for address, problem in ports.items() if not problem)
    # Without a port to listen on, one can still dial others, as an observer does.
    settings = replace(
        settings, role=settings.role if free else "observer", host_maddrs=free or LISTEN_EVERYWHERE
    )
    with ExitStack() as stack:
        settings = with_identity(settings, run_dir, stack)
        try:
            p2p = await start_daemon(settings, run_dir)
        except NodeError as error:
            return Checkup(ports, str(error), {}, {})
        try:
            return await _look_around(p2p, settings, ports, free)
        finally:
            await p2p.shutdown()


async def _look_around(
    p2p: GuardedP2P, settings: NodeSettings, ports: dict[str, str], free: Sequence[str]
) -> Checkup:
    """What the initial peers say, and whether they can dial the ports that are ``free``."""
    exchange = Exchange(p2p)
    said = await asyncio.gather(*(_call(p2p, exchange, peer) for peer in settings.initial_peers))
    answers = dict(zip(settings.initial_peers, said, strict=True))
    ready = [peer for peer, answer in answers.items() if not answer.problem]
    rejection = await _introduce(p2p, settings, answers, ready) if ready else None
    dialled = await _have_us_dialled(p2p, ready) if free and ready and not rejection else {}
    return Checkup(ports, "", answers, dialled, rejection)


def _port_problem(address: str) -> str:
    try:
        check_port_free(address)
    except UsageError as error:
        return str(error)
    return ""


async def _call(p2p: GuardedP2P, exchange: Exchange, address: str) -> Answer:
    """What the peer at ``address`` says, or why it says nothing."""
    if reason := (await dial_all(p2p, [address]))[address]:
        return Answer(reason)
    peer = Address.of_peer(address).peer_id
    called = time.time()
    try:
        hello = await exchange.hello(peer)
    except CallError as error:
        # Another program may listen there, or a peer that has only just started.
        return Answer(f"no dupt_swarm peer that is ready ({error})")
    answered = time.time()
    # It read its clock somewhere between question and answer; only a value outside that interval is wrong.
    ahead = max(hello.clock - answered, 0.0) + min(hello.clock - called, 0.0) if hello.clock else None
    return Answer("", hello.version, hello.manifest.encode(), ahead)


async def _introduce(
    p2p: GuardedP2P, settings: NodeSettings, answers: Mapping[str, Answer], ready: Sequence[str]
) -> str | None:
    """Show our invitation to those who answer; why they do not admit us, None if their swarm wants none."""
    with contextlib.suppress(ManifestError):  # which is told elsewhere
        manifest = Manifest.from_bytes(answers[ready[0]].manifest)
        if manifest.admission.kind == "open":
            return None
        try:
            check_invited(manifest, settings.invitation)
            p2p.admission = build_admission(p2p, settings, manifest)
            await p2p.admission.introduce([Address.of_peer(address).peer_id for address in ready])
        except AdmissionError as error:
            return str(error)
        return ""
    return None


async def _have_us_dialled(p2p: GuardedP2P, peers: Sequence[str]) -> dict[str, str]:
    """Why the first of ``peers`` that does so could not dial each of our TCP ports."""
    listening = await own_addresses(p2p)
    # At the IP that the other side sees.
    ways = [f"/ip4/0.0.0.0/tcp/{port}" for port in tcp_ports(listening)]
    for address in peers:
        with contextlib.suppress(CallError):  # an older program, or one asked too often
            return (await ask_to_dial(p2p, Address.of_peer(address).peer_id, ways)).reasons
    return {}
