"""The records that this peer knows: signed by their owners, checked once, and so many at most.

A record travels as its owner has signed it (`signed`), so anybody may pass it on. It names its swarm and
when it expires; whatever else a peer says of itself is a `PeerRecord`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hivemind.utils import get_dht_time

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.members.identity import short_name
from dupt_swarm.network.p2p.limits import Admission
from dupt_swarm.node.record import PeerRecord
from dupt_swarm.replica.plain import unpack
from dupt_swarm.replica.signed import peer_id_of, public_of, read_signed, sign

KIND = "record"
# An honest one has 400 to 1,300 with its key and its signature, 400 more with a credential, and an
# evaluator's up to 130 more for each task.
RECORD_BYTES_MAX = 3072
RECORDS_MAX = 1024
CLOCK_SKEW_SECONDS = 3.0  # hivemind refuses clocks further apart


class RefusedRecordError(ValueError):
    """A record is not believed; ``reason`` is one of `REFUSALS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"a record is refused: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class SignedRecord:
    """A record as it travels, and what it says.

    Attributes:
        peer_id: its owner's, which the signature proves.
        expires: by hivemind's clock.
        data: signed by its owner.
    """

    peer_id: str
    expires: float
    record: PeerRecord
    data: bytes

    @property
    def name(self) -> bytes:
        """A short one of its owner."""
        return short_name(self.peer_id)

    def changes(self, before: SignedRecord | None) -> bool:
        """Whether others should act on it at once: its owner came, left, or is at another state or work."""
        return before is None or _standing_of(self.record) != _standing_of(before.record)


class Records:
    """The newest record of each owner until it expires.

    When all places are taken, those that are known keep theirs, and newcomers wait until one is free. Mates
    take that of the newest who is none.

    Attributes:
        refused: how many records were not believed, by reason.
    """

    def __init__(
        self,
        manifest: Manifest,
        admission: Admission,
        mates: Callable[[], Collection[str]] = frozenset,
        crowded_out: Counter[str] | None = None,
    ) -> None:
        """
        Args:
            manifest: of the swarm.
            admission: says whose records it takes.
            mates: ids of the peers whose places come first.
            crowded_out: counts under ``full`` those for which there was no place.
        """
        self.refused: Counter[str] = Counter()
        self._swarm_id, self._lifetime = manifest.swarm_id, manifest.limits.record_seconds
        self._admission, self._mates = admission, mates
        self._crowded_out = Counter() if crowded_out is None else crowded_out
        self._known: dict[str, SignedRecord] = {}

    def __iter__(self) -> Iterator[SignedRecord]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def of(self, peer_id: str) -> SignedRecord | None:
        """The newest of that peer, if any is known."""
        return self._known.get(peer_id)

    def publish(self, key: Ed25519PrivateKey, record: PeerRecord) -> SignedRecord:
        """Sign our own record, to last as long as the manifest says, and keep it."""
        expires = get_dht_time() + self._lifetime
        data = _sign(key, self._swarm_id, record, expires)
        signed = SignedRecord(peer_id_of(public_of(key)), expires, record, data)
        self._known[signed.peer_id] = signed
        return signed

    def take(self, told: Iterable[bytes]) -> list[tuple[SignedRecord, SignedRecord | None]]:
        """Keep what is news of what others tell, each after its check; what is bad is dropped alone.

        Nothing is verified that is no news, or for which there is no place: the same comes again and again.

        Returns:
            The records that are news, each with that of the same owner before.
        """
        news = []
        for data in told:
            try:
                owner, expires = self._look_at(data)
                if self._is_news(owner, expires):
                    news.append((self._check(data, owner, expires), self._known.get(owner)))
                    self._keep(news[-1][0])
            except RefusedRecordError as error:
                self.refused[error.reason] += 1
        return news

    def forget_expired(self) -> None:
        """Give the places of those free that were silent for too long."""
        now = get_dht_time()
        self._known = {peer: each for peer, each in self._known.items() if each.expires > now}

    def _look_at(self, data: bytes) -> tuple[str, float]:
        """The peer named as signer of ``data``, and when it expires: nothing is verified yet."""
        if len(data) > RECORD_BYTES_MAX:
            raise RefusedRecordError("size")
        try:
            fields: Any = unpack(data)
            text, public, _ = fields
            expires = json.loads(text)["expires"]
            if type(expires) is float and math.isfinite(expires):
                return peer_id_of(public), expires
        except Exception as error:
            # Whatever hostile bytes provoke in msgpack, JSON or cryptography: the record is bad.
            raise RefusedRecordError("content") from error
        raise RefusedRecordError("content")

    def _is_news(self, owner: str, expires: float) -> bool:
        """Whether a record with this owner and end would be kept, and is not known yet."""
        if expires <= get_dht_time():
            return False
        if owner in self._known:
            return self._known[owner].expires < expires
        if len(self._known) < RECORDS_MAX or owner in self._mates():
            return True
        self._crowded_out["full"] += 1
        return False

    def _check(self, data: bytes, owner: str, expires: float) -> SignedRecord:
        try:
            _, content = read_signed(data, KIND)
        except ValueError as error:
            raise RefusedRecordError("signature") from error
        now = get_dht_time()
        try:
            if content["swarm"] != self._swarm_id:
                raise RefusedRecordError("content")
            record = _read(content["record"])
        except (KeyError, ValueError) as error:
            raise RefusedRecordError("content") from error
        if expires > now + self._lifetime + CLOCK_SKEW_SECONDS or record.time > now + CLOCK_SKEW_SECONDS:
            raise RefusedRecordError("time")
        if self._admission.admit(owner, record.credential):
            raise RefusedRecordError("invitation")
        return SignedRecord(owner, expires, record, data)

    def _keep(self, record: SignedRecord) -> None:
        if record.peer_id not in self._known and len(self._known) >= RECORDS_MAX:
            mates = self._mates()
            out = next((each for each in reversed(self._known) if each not in mates), None)
            if out is None:
                return
            del self._known[out]
        self._known[record.peer_id] = record


def _standing_of(record: PeerRecord) -> tuple[object, ...]:
    return record.role, record.state, record.round, record.state_digest


def _read(content: object) -> PeerRecord:
    """The record that plain JSON stands for.

    Raises:
        ValueError: it is malformed or implausible.
    """
    if isinstance(content, dict):
        content = {name: tuple(each) if isinstance(each, list) else each for name, each in content.items()}
    return PeerRecord.model_validate(content)


def _sign(key: Ed25519PrivateKey, swarm_id: str, record: PeerRecord, expires: float) -> bytes:
    """``record`` as it travels: without the sample, then fewer tasks, if others would find it too long."""
    content: dict[str, Any] = {"swarm": swarm_id, "expires": expires, "record": record.published()}
    data = sign(key, KIND, content)
    if len(data) > RECORD_BYTES_MAX and content["record"].get("evaluation", {}).pop("sample", None):
        data = sign(key, KIND, content)
    while len(data) > RECORD_BYTES_MAX and content["record"].get("tasks"):
        content["record"]["tasks"].pop()
        data = sign(key, KIND, content)
    if len(data) > RECORD_BYTES_MAX:
        raise ValueError("nobody would accept this record: it is too long")
    return data
