"""Relays: peers that carry what is sent to a peer that nobody can dial."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hivemind.p2p import P2P, PeerID

from dupt_swarm.network.p2p.daemon import ReachabilitySettings, dial, start_daemon
from dupt_swarm.network.p2p.hivemind_internals import open_stream
from dupt_swarm.node.addresses import host_of, is_relayed
from dupt_swarm.node.view import View
from dupt_swarm.settings import NodeSettings

RELAYS = 3  # that a peer uses at once
TOLD_MAX = 4  # relays told to a peer that asks for some
CARRIES_BYTES_MIN = 1 << 40
PROBE_SECONDS = 5.0
STARTS_MAX = 8
HOP = "/libp2p/circuit/relay/0.2.0/hop"
# libp2p's circuit v2: a message of one field, the wish to reserve a place, with its length before it.
RESERVE = b"\x02\x08\x00"
LIMIT_FIELD, DATA_FIELD, STATUS_FIELD, STATUS_OK = 4, 2, 5, 100
ANSWER_BYTES_MAX = 4096

logger = logging.getLogger(__name__)


async def bytes_carried(p2p: P2P, relay: PeerID) -> float:
    """How much ``relay``, to which we are connected, would carry for us: 0 if it is none."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await open_stream(p2p, relay, HOP)
            try:
                writer.write(RESERVE)
                return limit_of(await _read_message(reader))
            finally:
                writer.close()
    except Exception:
        # No relay, or none any more; whatever libp2p calls it.
        return 0


async def choose_relays(p2p: P2P, candidates: Sequence[str]) -> tuple[str, ...]:
    """Those of the ``candidates`` (addresses with peer ids) that can be reached and carry enough."""
    fit: dict[str, str] = {}
    for address in candidates:
        # libp2p tells nobody of relays at private addresses: those who need one could not reach it.
        if len(fit) == RELAYS or not _is_public(address) or is_relayed(address):
            continue
        peer_id = address.rpartition("/")[2]
        # Dialling checks the address too: other peers may have told us anything.
        if peer_id in fit or await dial(p2p, address):
            continue
        if await bytes_carried(p2p, PeerID.from_base58(peer_id)) >= CARRIES_BYTES_MIN:
            fit[peer_id] = address
    return tuple(fit.values())


def known_relays(view: View) -> tuple[str, ...]:
    """Some of the peers that everybody can dial, for a peer that nobody can; not always the same."""
    relays = list(_relays_in(view))
    return tuple(random.sample(relays, min(len(relays), TOLD_MAX)))


async def start_relay(settings: NodeSettings, run_dir: Path, announced: tuple[str, ...]) -> P2P:
    """Start a daemon that relays for others; ``settings`` have to name its ports.

    p2pd registers two relay services, one with libp2p's defaults (128 KiB in two minutes) and one
    with the limits that we give, and the later one wins: in half of the starts the wrong one. So it is
    looked at from outside, and started again if need be.

    Raises:
        UsageError: as `start_daemon`.
        NodeError: as `start_daemon`.
    """
    inside = [re.sub("^/ip4/0.0.0.0/", "/ip4/127.0.0.1/", address) for address in settings.host_maddrs]
    observer = await start_daemon(NodeSettings("observer"), run_dir)
    try:
        for _ in range(STARTS_MAX):
            p2p = await start_daemon(settings, run_dir, ReachabilitySettings("public", announced=announced))
            for address in inside:
                await dial(observer, f"{address}/p2p/{p2p.peer_id}")
            if await bytes_carried(observer, p2p.peer_id) >= CARRIES_BYTES_MIN:
                return p2p
            await p2p.shutdown()
    finally:
        await observer.shutdown()
    logger.warning("libp2p's relay service did not start; peers behind a NAT need another relay")
    return await start_daemon(settings, run_dir, ReachabilitySettings(announced=announced))


def _relays_in(view: View) -> Iterator[str]:
    for peer in view.peers:
        ways = [way for way in peer.record.addresses if _is_public(way) and not is_relayed(way)]
        if peer.record.reach == "direct" and ways:
            yield f"{ways[0]}/p2p/{peer.peer_id}"


def _is_public(address: str) -> bool:
    host = host_of(address)
    return host is None or host.is_global


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    length, shift = 0, 0
    while True:
        [byte] = await reader.readexactly(1)
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > ANSWER_BYTES_MAX:
        raise ValueError("not an answer of a relay")
    return await reader.readexactly(length)


def limit_of(answer: bytes) -> float:
    """Bytes that a relay's answer to `RESERVE` allows: 0 if it refuses, infinity without a limit."""
    try:
        fields = _fields(answer)
        if fields.get(STATUS_FIELD) != STATUS_OK:
            return 0
        return float(_fields(fields.get(LIMIT_FIELD, b"")).get(DATA_FIELD, math.inf))
    except (DecodeError, TypeError, ValueError):
        return 0


def _fields(message: bytes) -> dict[int, Any]:
    """The fields of a protobuf message by number, without knowing their names."""
    fields: Iterable[Any] = UnknownFieldSet(Empty.FromString(message))  # type: ignore[assignment]
    return {field.field_number: field.data for field in fields}
