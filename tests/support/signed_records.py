"""Records of peers that exist only as keys: anybody may make as many as they like."""

from __future__ import annotations

from typing import Any

import msgpack
from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import DHTRecord
from hivemind.p2p import P2P
from hivemind.utils import MSGPackSerializer, get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import owner_tag, peer_id_of
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.validator import build_validator, peers_key
from tests.support.stranger import store_until

SECONDS = 20.0


def fresh_key() -> RSAPrivateKey:
    return RSAPrivateKey()


def id_of(key: RSAPrivateKey) -> str:
    return peer_id_of(owner_tag(key))


def signed_record(
    manifest: Manifest, key: RSAPrivateKey, seconds: float = SECONDS, **fields: Any
) -> list[Any]:
    """Owner tag, signed value and expiration of a plausible record, as dictionaries of the DHT have them."""
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
    place, tag, expires = DHTID.generate(source=peers_key(manifest.swarm_id)), owner_tag(key), now + seconds
    dumps = MSGPackSerializer.dumps
    unsigned = DHTRecord(place.to_bytes(), dumps(tag), dumps(record), expires)
    return [tag, build_validator(manifest, key).sign_value(unsigned), expires]


async def publish(manifest: Manifest, node: DHTNode, key: RSAPrivateKey) -> bytes:
    """Store the record of the owner of ``key`` as its node does; its owner tag."""
    membership = Membership(manifest, node, key)
    membership.update(
        role="oracle", state="training", round=0, state_digest="ab" * 32, swarm_tokens=0, now=True
    )
    await membership.publish()
    return owner_tag(key)


async def store_record(p2p: P2P, address: str, manifest: Manifest, key: RSAPrivateKey, **fields: Any) -> bool:
    """Have the peer at ``address`` keep such a record; whether it does."""
    tag, value, expires = signed_record(manifest, key, **fields)
    swarm_key = peers_key(manifest.swarm_id)
    return await store_until(p2p, address, swarm_key, msgpack.packb(tag), value, expires) == [True]
