"""Records of peers that exist only as keys: anybody may make as many as they like."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import combinations, count, islice
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from hivemind.p2p import P2P
from hivemind.proto import crypto_pb2
from hivemind.utils import get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.gossip import Answer, Gossip, Request, Told
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.members.records import KIND
from dupt_swarm.network.p2p.rpc import ANSWERED
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.replica.signed import peer_id_of_key, sign
from tests.support.stranger import call_raw

SECONDS = 20.0


def fresh_key() -> RSAPrivateKey:
    return RSAPrivateKey()


def some_keys(number: int) -> list[RSAPrivateKey]:
    """The same ones each time: pytest's workers import all tests, and each key takes a moment."""
    return [_one_of_some(place) for place in range(number)]


@cache
def _one_of_some(_: int) -> RSAPrivateKey:
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
    return peer_id_of_key(key.get_public_key().to_bytes())


def write_identity(key: RSAPrivateKey, path: Path) -> Path:
    """Have ``key`` in a file as libp2p has it, for a daemon to be its owner."""
    path.write_bytes(crypto_pb2.PrivateKey(key_type=crypto_pb2.RSA, data=key.to_bytes()).SerializeToString())
    return path


def signed_record(manifest: Manifest, key: RSAPrivateKey, seconds: float = SECONDS, **fields: Any) -> bytes:
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
    for member in members:
        await member.gossip.start()
        member.update(
            RecordUpdate(role="oracle", state="training", round=0, swarm_tokens=0, state_digest="a" * 64)
        )
    yield members


async def tell(p2p: P2P, address: str, record: bytes, *, urgent: bool = False) -> None:
    """Tell the peer at ``address`` of a record, as members do."""
    await call_raw(p2p, address, Gossip.rpc_tell.name, Told(record, urgent=urgent).pack())


async def tell_record(p2p: P2P, address: str, manifest: Manifest, key: RSAPrivateKey, **fields: Any) -> None:
    """Tell the peer at ``address`` of such a record."""
    await tell(p2p, address, signed_record(manifest, key, **fields))


async def ask(p2p: P2P, address: str) -> tuple[bytes, ...]:
    """The records that the peer at ``address`` gives to one who knows nothing."""
    reply = await call_raw(p2p, address, Gossip.rpc_records.name, Request(b"", {}).pack())
    return Answer.read(reply.removeprefix(ANSWERED)).records
