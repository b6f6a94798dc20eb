"""Relays: peers that forward traffic to a peer that nobody can dial."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hivemind.p2p import P2P, PeerID

from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.hivemind_internals import open_stream
from dupt_swarm.network.reach.starting import start_daemon
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.view import View
from dupt_swarm.settings import RELAY_BYTES_MIN, NodeSettings

RELAYS = 3  # that a peer uses at once
TOLD_MAX = 4  # relays told to a peer that asks for some
RESERVE_SECONDS = 5.0
# On a busy machine one start in eleven fails, and the next then more easily (9 of 105, and 2 of 7 again).
STARTS_MAX = 8
GO_PROCESSORS = "GOMAXPROCS"
HOP = "/libp2p/circuit/relay/0.2.0/hop"
# libp2p's circuit v2: a message of one field, the wish to reserve a place, with its length before it.
RESERVE = b"\x02\x08\x00"
LIMIT_FIELD, DATA_FIELD, STATUS_FIELD, STATUS_OK = 4, 2, 5, 100
LENGTH_SHIFTS = (0, 7)  # of a length in two bytes at most, so under 16 KiB

logger = logging.getLogger(__name__)


async def bytes_carried(p2p: P2P, relay: PeerID) -> float:
    """The bytes that ``relay``, to which we are connected, would carry for us: 0 if it is not a relay."""
    try:
        async with asyncio.timeout(RESERVE_SECONDS):
            _, reader, writer = await open_stream(p2p, relay, HOP)
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
    for address in map(Address.parse, candidates):
        # libp2p never announces relays at private addresses: peers that need one could not reach it.
        if len(fit) == RELAYS or not address.public or address.peer_id in fit:
            continue
        # Dialling checks the address too: other peers may have told us anything.
        if await dial(p2p, str(address)):
            continue
        if await bytes_carried(p2p, PeerID.from_base58(address.peer_id)) >= RELAY_BYTES_MIN:
            fit[address.peer_id] = str(address)
    return tuple(fit.values())


def known_relays(view: View) -> tuple[str, ...]:
    """A few publicly reachable peers, for a peer that nobody can dial: voters first, of equals any.

    Keys are cheap: strangers that claim to be reachable must not be all that a newcomer hears of.
    """
    relays = []
    for peer in view.peers:
        public = [way for way in peer.record.addresses if Address.parse(way).public]
        if peer.record.reach == "direct" and public:
            relays.append(str(Address(public[0], peer.peer_id)))
    random.shuffle(relays)
    relays.sort(key=lambda relay: Address.parse(relay).peer_id not in view.voters)
    return tuple(relays[:TOLD_MAX])


async def start_relay(settings: NodeSettings, run_dir: Path, announced: tuple[str, ...]) -> GuardedP2P:
    """Start a daemon that relays for others; ``settings`` have to name its ports.

    p2pd 0.5 makes two relay services: `EnableRelayV2` in its main thread with libp2p's defaults (128 KiB
    in two minutes), and libp2p's relay manager in a thread of its own with the limits that we give. The
    later one answers, and no flag has the second without the first. On one processor the thread that is
    woken last comes last, nearly always. So relays have one, the service is looked at from outside, and the
    daemon is started again until it is the right one.

    Raises:
        UsageError: as `start_daemon`.
        NodeError: as `start_daemon`.
    """
    inside = [_from_inside(Address.parse(text)) for text in settings.host_maddrs]
    observer = await start_daemon(NodeSettings("observer"), run_dir)
    carried = []
    try:
        for _ in range(STARTS_MAX):
            with one_processor():
                p2p = await start_daemon(settings, run_dir, announced=announced, relaying=True)
            for address in inside:
                await dial(observer, str(replace(address, peer_id=str(p2p.peer_id))))
            carried.append(await bytes_carried(observer, p2p.peer_id))
            if carried[-1] >= RELAY_BYTES_MIN:
                logger.info("relays for others, as daemon number %d", len(carried))
                return p2p
            await p2p.shutdown()
    finally:
        await observer.shutdown()
    logger.warning(
        "libp2p's relay service did not start in %d attempts, which carry %s bytes; "
        "peers behind a NAT need another relay",
        *(len(carried), ", ".join(f"{each:.0f}" for each in carried)),
    )
    return await start_daemon(settings, run_dir, announced=announced)


@contextmanager
def one_processor() -> Iterator[None]:
    """Go programs that are started meanwhile compute on one processor at a time, as long as they live."""
    before = os.environ.get(GO_PROCESSORS)
    os.environ[GO_PROCESSORS] = "1"
    try:
        yield
    finally:
        del os.environ[GO_PROCESSORS]
        if before is not None:
            os.environ[GO_PROCESSORS] = before


def _from_inside(address: Address) -> Address:
    """Where one dials what listens at ``address`` from the same machine."""
    anywhere = address.host is not None and address.host.is_unspecified
    return address.with_host("127.0.0.1" if "/ip4/" in address.way else "::1") if anywhere else address


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    length = 0
    for shift in LENGTH_SHIFTS:
        [byte] = await reader.readexactly(1)
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return await reader.readexactly(length)
    raise ValueError("not an answer of a relay")


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
