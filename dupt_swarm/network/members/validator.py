"""DHT records: who may store what under which key, checked alike on every node of the swarm.

There is one key, ``<swarm_id>.peers``, under which each peer stores its `PeerRecord`, signed. No other
takes anything.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from dataclasses import replace
from typing import Any

import msgpack
from hivemind.dht.crypto import RSASignatureValidator
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.validation import CompositeValidator, DHTRecord, RecordValidatorBase
from hivemind.utils import get_dht_time
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import is_owner_tag, peer_id_of
from dupt_swarm.network.p2p.dht_messages import KEY_BYTES, SUBKEY_BYTES_MAX
from dupt_swarm.network.p2p.guard import OPEN, Admission
from dupt_swarm.network.p2p.plain_msgpack import unpack
from dupt_swarm.node.record import PeerRecord

SIGNATURE_BEGIN, SIGNATURE_END = RSASignatureValidator.SIGNATURE_FORMAT.split(b"_value_")
SIGNATURE_BYTES = len(SIGNATURE_BEGIN) + 344 + len(SIGNATURE_END)
RECORD_BYTES_MAX = 1936  # an honest one has 300 to 950, and 300 more where a swarm admits by invitation
ACCEPTED_KEPT_MAX = 4096  # of the records, by their hashes
CLOCK_SKEW_SECONDS = 3.0  # hivemind refuses clocks further apart


def peers_key(swarm_id: str) -> str:
    """The DHT key of the peers' records."""
    return f"{swarm_id}.peers"


def parse_record(tag: bytes, value: object) -> tuple[str, PeerRecord]:
    """The peer id that the owner tag proves, and its record.

    Raises:
        ValueError: the record is malformed or implausible.
    """
    peer_id = peer_id_of(tag)
    if isinstance(value, dict):
        value = {name: tuple(each) if isinstance(each, list) else each for name, each in value.items()}
    return peer_id, PeerRecord.model_validate(value)


class RecordValidator(RecordValidatorBase):  # type: ignore[misc]
    """Accepts bounded peer records, and nothing else."""

    def __init__(self, manifest: Manifest, admission: Admission) -> None:
        self._admission = admission
        self._peers_key: bytes = DHTID.generate(source=peers_key(manifest.swarm_id)).to_bytes()
        self._lifetime = manifest.limits.record_seconds + CLOCK_SKEW_SECONDS

    def validate(self, record: DHTRecord) -> bool:
        """Whether to store or believe ``record``, whose signature has been checked and taken off."""
        return not self.objection(record)

    def objection(self, record: DHTRecord) -> str:
        """Why not, one of `REFUSALS`; empty if there is nothing against it."""
        if len(record.value) > RECORD_BYTES_MAX:
            return "size"
        try:
            return self._check(record)
        except Exception:
            # Whatever hostile bytes provoke in msgpack, cryptography or pydantic: the record is bad.
            return "content"

    def _check(self, record: DHTRecord) -> str:
        if record.key != self._peers_key or record.subkey in DHTProtocol.RESERVED_SUBKEYS:
            return "content"
        left = record.expiration_time - get_dht_time()
        subkey, value = unpack(record.subkey), unpack(record.value)
        if not isinstance(subkey, bytes):
            return "content"
        peer_id, parsed = parse_record(subkey, value)
        in_time = left <= self._lifetime and parsed.time <= get_dht_time() + CLOCK_SKEW_SECONDS
        if not in_time:
            return "time"
        return "invitation" if self._admission.admit(peer_id, parsed.credential) else ""


class SwarmValidator(CompositeValidator):  # type: ignore[misc]
    """Lengths first, then forms, then the signature (hivemind searches in quadratic time), then content.

    Attributes:
        refused: how many records were rejected, by reason.
    """

    def __init__(self, manifest: Manifest, key: RSAPrivateKey, admission: Admission = OPEN) -> None:
        self._signature, self._content = RSASignatureValidator(key), RecordValidator(manifest, admission)
        super().__init__([self._signature, self._content])
        self.refused: Counter[str] = Counter()
        self._accepted: OrderedDict[bytes, bool] = OrderedDict()

    def validate(self, record: DHTRecord) -> bool:
        """Whether to store or believe ``record``, as it came from the network.

        Whatever was accepted stays acceptable as time goes on, and each reading brings most of it again.
        """
        name = _name_of(record)
        if name in self._accepted:
            self._accepted.move_to_end(name)
            return True
        reason = self._objection(record)
        if reason:
            self.refused[reason] += 1
            return False
        self._accepted[name] = True
        if len(self._accepted) > ACCEPTED_KEPT_MAX:
            self._accepted.popitem(last=False)
        return True

    def _objection(self, record: DHTRecord) -> str:
        if (
            len(record.key) != KEY_BYTES
            or len(record.subkey) > SUBKEY_BYTES_MAX
            or len(record.value) > RECORD_BYTES_MAX + SIGNATURE_BYTES
        ):
            return "size"
        try:
            if not is_owner_tag(unpack(record.subkey)):
                return "content"
            body = _without_signature(record.value)
            if body is None:
                return "signature"
            unpack(body)
        except ValueError:
            return "content"
        try:
            if not self._signature.validate(record):
                return "signature"
        except Exception:
            # A malformed key raises in cryptography.
            return "signature"
        return self._content.objection(replace(record, value=body))


def _name_of(record: DHTRecord) -> bytes:
    fields = msgpack.packb([record.key, record.subkey, record.value, record.expiration_time])
    return hashlib.sha256(fields).digest()


def _without_signature(value: bytes) -> bytes | None:
    """What was signed; None where there is not one signature, at the end, of the length that all have."""
    body, signature = value[:-SIGNATURE_BYTES], value[-SIGNATURE_BYTES:]
    formed = signature.startswith(SIGNATURE_BEGIN) and signature.endswith(SIGNATURE_END)
    return body if body and formed and value.count(SIGNATURE_BEGIN) == 1 else None


def build_validator(manifest: Manifest, key: RSAPrivateKey, admission: Admission = OPEN) -> SwarmValidator:
    """The validator that every DHT node of this swarm runs; ``admission`` says whose records it takes."""
    return SwarmValidator(manifest, key, admission)


def published(record: PeerRecord) -> dict[str, Any]:
    """What is stored: without the sample where it would make the record longer than others accept."""
    value = record.published()
    evaluation = value.get("evaluation", {})
    if "sample" in evaluation and len(msgpack.packb(value)) > RECORD_BYTES_MAX:
        del evaluation["sample"]
    return value
