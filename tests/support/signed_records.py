"""Records of peers that exist only as keys: anybody may make as many as they like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, count, islice
from pathlib import Path
from typing import Any

import msgpack
from cryptography.hazmat.primitives.asymmetric import rsa
from hivemind.dht.node import DHTNode
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import DHTRecord
from hivemind.p2p import P2P, PeerID
from hivemind.proto import crypto_pb2, dht_pb2
from hivemind.utils import MSGPackSerializer, get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import owner_tag, peer_id_of
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.validator import build_validator, peers_key
from dupt_swarm.node.record import RecordUpdate
from tests.support.stranger import peer_id_in, store_until

SECONDS = 20.0


def fresh_key() -> RSAPrivateKey:
    return RSAPrivateKey()


def many_keys(number: int) -> list[RSAPrivateKey]:
    """So many fresh keys, far sooner than by making each: any two of a few primes are one.

    They sign, and are checked, like all others; whoever needs no secrets may do the same.
    """
    needed = next(each for each in count(2) if each * (each - 1) // 2 >= number)
    pairs = combinations(islice(_primes(), needed), 2)
    return [_key_of(*pair) for pair in islice(pairs, number)]


def _primes() -> Iterator[int]:
    while True:
        numbers = rsa.generate_private_key(65537, 2048).private_numbers()
        yield from (numbers.p, numbers.q)


def _key_of(p: int, q: int) -> RSAPrivateKey:
    d = pow(65537, -1, (p - 1) * (q - 1))
    crt = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    numbers = rsa.RSAPrivateNumbers(p, q, d, *crt, rsa.RSAPublicNumbers(65537, p * q))
    key = RSAPrivateKey.__new__(RSAPrivateKey)
    key._private_key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    return key


def id_of(key: RSAPrivateKey) -> str:
    return peer_id_of(owner_tag(key))


def nearest_keys(keys: list[RSAPrivateKey], name: str) -> list[RSAPrivateKey]:
    """Those first whose owners stand nearest in the DHT to what is called ``name`` there."""
    wished = DHTID.generate(source=name)

    def distance(key: RSAPrivateKey) -> int:
        return int(wished.xor_distance(DHTID.generate(source=PeerID.from_base58(id_of(key)).to_bytes())))

    return sorted(keys, key=distance)


def write_identity(key: RSAPrivateKey, path: Path) -> Path:
    """Have ``key`` in a file as libp2p has it, for a daemon to be its owner."""
    path.write_bytes(crypto_pb2.PrivateKey(key_type=crypto_pb2.RSA, data=key.to_bytes()).SerializeToString())
    return path


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
    first = RecordUpdate(role="oracle", state="training", round=0, state_digest="ab" * 32, swarm_tokens=0)
    membership.update(first, now=True)
    await membership.publish()
    return owner_tag(key)


async def store_record(p2p: P2P, address: str, manifest: Manifest, key: RSAPrivateKey, **fields: Any) -> bool:
    """Have the peer at ``address`` keep such a record; whether it does."""
    tag, value, expires = signed_record(manifest, key, **fields)
    swarm_key = peers_key(manifest.swarm_id)
    return await store_until(p2p, address, swarm_key, msgpack.packb(tag), value, expires) == [True]


async def store_rows(p2p: P2P, address: str, manifest: Manifest, rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Have the peer at ``address`` keep these, as `signed_record` makes them, in one call; which it does."""
    place = DHTID.generate(source=peers_key(manifest.swarm_id)).to_bytes()
    request = dht_pb2.StoreRequest(
        keys=[place] * len(rows),
        subkeys=[msgpack.packb(tag) for tag, _, _ in rows],
        values=[value for _, value, _ in rows],
        expiration_time=[expires for _, _, expires in rows],
        in_cache=[False] * len(rows),
    )
    stub = super(DHTProtocol, DHTProtocol).get_stub(p2p, peer_id_in(address))
    reply = await stub.rpc_store(request, timeout=30)
    return list(reply.store_ok)
