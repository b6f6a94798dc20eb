"""DHT records: who may store what under which key, checked alike on every node of the swarm.

Two kinds of keys exist. Under ``<swarm_id>.peers`` each peer stores its `PeerRecord`, signed. Under
``<swarm_id>.0b<bits>`` hivemind's matchmaking keeps who looks for a group; those keys cannot be
listed beforehand (and arrive hashed), so all other keys take nothing but a boolean.
"""

from __future__ import annotations

from hivemind.dht.crypto import RSASignatureValidator
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import CompositeValidator, DHTRecord, RecordValidatorBase
from hivemind.utils import MSGPackSerializer, get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.identity import peer_id_of
from dupt_swarm.network.view import PeerRecord

RECORD_BYTES_MAX = 1536  # an honest one has 300 to 700; 2700 of the largest fit into one answer of the DHT
CLOCK_SKEW_SECONDS = 3.0  # hivemind refuses clocks further apart


def peers_key(swarm_id: str) -> str:
    """The DHT key of the peers' records."""
    return f"{swarm_id}.peers"


def parse_record(tag: bytes, value: object) -> tuple[str, PeerRecord]:
    """The peer id that the owner tag proves, and the record that stands under it.

    Raises:
        ValueError: not a well-formed record of a plausible content.
    """
    peer_id = peer_id_of(tag)
    return peer_id, PeerRecord.model_validate(value)


class RecordValidator(RecordValidatorBase):  # type: ignore[misc]
    """Accepts signed, bounded peer records and matchmaking's booleans, and nothing else."""

    def __init__(self, manifest: Manifest) -> None:
        self._peers_key: bytes = DHTID.generate(source=peers_key(manifest.swarm_id)).to_bytes()
        self._lifetime = manifest.limits.record_seconds + CLOCK_SKEW_SECONDS
        self._matchmaking = 2 * manifest.rounds.matchmaking_seconds + CLOCK_SKEW_SECONDS

    def validate(self, record: DHTRecord) -> bool:
        """Whether to store or believe ``record``, whose signature has been checked and taken off."""
        try:
            return self._check(record)
        except Exception:
            # Whatever hostile bytes provoke in msgpack, cryptography or pydantic: the record is bad.
            return False

    def _check(self, record: DHTRecord) -> bool:
        if record.subkey in DHTProtocol.RESERVED_SUBKEYS or len(record.value) > RECORD_BYTES_MAX:
            return False
        left = record.expiration_time - get_dht_time()
        subkey = MSGPackSerializer.loads(record.subkey)
        value = MSGPackSerializer.loads(record.value)
        if record.key != self._peers_key:
            return isinstance(value, bool) and len(subkey) <= 64 and bool(left <= self._matchmaking)
        _, parsed = parse_record(subkey, value)
        return bool(left <= self._lifetime and parsed.time <= get_dht_time() + CLOCK_SKEW_SECONDS)


def build_validator(manifest: Manifest, key: RSAPrivateKey) -> CompositeValidator:
    """Signature first, then content: what every DHT node of this swarm runs."""
    return CompositeValidator([RSASignatureValidator(key), RecordValidator(manifest)])
