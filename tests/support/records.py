"""Records of peers as they are in the DHT, for tests that store or answer by hand."""

from typing import Any

import msgpack
from hivemind.dht.node import DHTNode
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import DHTRecord
from hivemind.utils import get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import owner_tag
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.validator import build_validator, peers_key

FIELDS: dict[str, Any] = {
    "role": "oracle",
    "state": "training",
    "round": 1,
    "state_digest": "ab" * 32,
    "swarm_tokens": 100,
}


def signed_row(manifest: Manifest, key: RSAPrivateKey, seconds: float = 20.0) -> list[Any]:
    """A row of the peers' dictionary: owner tag, signed record, and when it expires."""
    place = DHTID.generate(source=peers_key(manifest.swarm_id)).to_bytes()
    tag, expires = owner_tag(key), get_dht_time() + seconds
    content = msgpack.packb(FIELDS | {"time": get_dht_time()})
    unsigned = DHTRecord(place, msgpack.packb(tag), content, expires)
    return [tag, build_validator(manifest, key).sign_value(unsigned), expires]


async def publish(manifest: Manifest, node: DHTNode, key: RSAPrivateKey) -> bytes:
    """Store the record of the owner of ``key`` as its node does; its owner tag."""
    membership = Membership(manifest, node, key)
    membership.update(**FIELDS)
    await membership.publish()
    return owner_tag(key)
