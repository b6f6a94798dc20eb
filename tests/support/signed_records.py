"""Records of peers that exist only as keys: anybody may make as many as they like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.p2p import P2P
from hivemind.utils import get_dht_time

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.gossip import Answer, Gossip, Request, Told
from dupt_swarm.network.members.identity import as_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.records import KIND
from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.signed import peer_id_of, public_of, sign
from tests.support.stranger import call_raw

SECONDS = 20.0


def fresh_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def fresh_keys(number: int) -> list[Ed25519PrivateKey]:
    return [fresh_key() for _ in range(number)]


def id_of(key: Ed25519PrivateKey) -> str:
    return peer_id_of(public_of(key))


def write_identity(key: Ed25519PrivateKey, path: Path) -> Path:
    """Have ``key`` in a file as libp2p has it, for a daemon to be its owner."""
    path.write_bytes(as_identity(key))
    return path


def signed_record(
    manifest: Manifest, key: Ed25519PrivateKey, seconds: float = SECONDS, **fields: Any
) -> bytes:
    """A plausible record as it travels, which expires in so many ``seconds``."""
    now = get_dht_time()
    record = {
        "role": "oracle",
        "state": "training",
        "time": now,
        "round": 0,
        "state_digest": "ab" * 32,
        "swarm_tokens": 0,
        **fields,
    }
    return sign(key, KIND, {"swarm": manifest.swarm_id, "expires": now + seconds, "record": record})


@asynccontextmanager
async def members_at(stations: Sequence[Any], manifest: Manifest) -> AsyncIterator[list[Membership]]:
    """A membership of each station, which answers others; each has something to publish."""
    members = [Membership(manifest, each.p2p, each.key) for each in stations]
    for each, member in zip(stations, members, strict=True):
        await each.p2p.serve(member.gossip)
        member.update(
            RecordUpdate(role="oracle", state="training", round=0, swarm_tokens=0, state_digest="a" * 64)
        )
    yield members


async def tell(p2p: P2P, address: str, record: bytes, *, urgent: bool = False) -> None:
    """Tell the peer at ``address`` of a record, as members do."""
    await call_raw(p2p, address, Gossip.rpc_tell.name, Told(record, urgent=urgent).pack())


async def tell_record(
    p2p: P2P, address: str, manifest: Manifest, key: Ed25519PrivateKey, **fields: Any
) -> None:
    """Tell the peer at ``address`` of such a record."""
    await tell(p2p, address, signed_record(manifest, key, **fields))


async def ask(p2p: P2P, address: str) -> tuple[bytes, ...]:
    """The records that the peer at ``address`` gives to one who knows nothing."""
    reply = await call_raw(p2p, address, Gossip.rpc_records.name, Request(b"", {}).pack())
    return Answer.read(reply.removeprefix(ANSWERED)).records
