"""The receipts of a round: each reducer signs what it has returned to the members, the same for all.

Whoever gets averages takes them only with the reducer's receipt. So two members with different averages hold
proof between them of who has made the difference.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.averaging.votes import Subject
from dupt_swarm.network.members.signed import read_signed, sign
from dupt_swarm.replica.log_entry import Count, Digest

KIND: Literal["receipt"] = "receipt"
RECEIPT_BYTES_MAX = 2048


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    swarm: Annotated[str, Field(max_length=80)]
    roll: Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]
    round: Count
    before: Digest
    share: Digest


class ShareHash:
    """Of what a reducer returns: the bytes of each part and its weight, in order, as they come."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, data: bytes | memoryview, weight: float) -> None:
        """The next part; in a thread, as parts are long."""
        self._hash.update(data)
        self._hash.update(struct.pack("<d", weight))

    @property
    def digest(self) -> str:
        """Of the parts so far: SHA-256, hexadecimal."""
        return self._hash.hexdigest()


@dataclass(frozen=True)
class Receipt:
    """A reducer's word on its share of the average.

    Attributes:
        subject: the attempt to end a round in which it was the reducer.
        share: digest of what it has returned; see `ShareHash`.
        reducer: its peer id.
        data: as it was signed.
    """

    subject: Subject
    share: str
    reducer: str
    data: bytes

    @cached_property
    def id(self) -> str:
        """What it says, and who says it: signatures of it may differ."""
        return hashlib.sha256(f"{self.reducer} {self.share}".encode()).hexdigest()

    @classmethod
    def sign(cls, subject: Subject, share: str, me: str, key: RSAPrivateKey) -> Receipt:
        """The receipt of the owner of ``key``, whose peer id is ``me``: one on each roll, never two."""
        content = _Content(
            swarm=subject.swarm_id,
            roll=subject.roll,
            round=subject.round,
            before=subject.before,
            share=share,
        )
        return cls(subject, share, me, sign(key, KIND, content.model_dump()))

    @classmethod
    def read(cls, data: bytes) -> Receipt:
        """Read another peer's.

        Raises:
            ValueError: it is malformed, or its signature is wrong.
        """
        if len(data) > RECEIPT_BYTES_MAX:
            raise ValueError("a receipt is too long")
        reducer, fields = read_signed(data, KIND)
        content = _Content.model_validate(fields)
        subject = Subject(content.swarm, content.roll, content.round, content.before)
        return cls(subject, content.share, reducer, data)

    def check(self, subject: Subject, share: str, reducer: str) -> None:
        """Whether it is of what ``reducer`` has returned here.

        Raises:
            ValueError: it is somebody else's, about something else, or of other averages.
        """
        if self.reducer != reducer:
            raise ValueError("a receipt of another reducer")
        if self.subject != subject:
            raise ValueError("a receipt of another group")
        if self.share != share:
            raise ValueError("a receipt of other averages")
