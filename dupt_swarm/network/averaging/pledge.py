"""What a member signs of an attempt to end a round: votes and acceptances, and proof that two differ.

Nobody takes a state before enough others have signed for it. So nothing that one peer does, computes or says
by itself changes a replica state, however it has come about. Whoever holds a proof convinces everybody else,
and nobody can make it but the owner of the key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Self

import msgpack
from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.fields import Count, Digest
from dupt_swarm.replica.plain import unpack
from dupt_swarm.replica.signed import read_signed, sign

PLEDGE_BYTES_MAX = 2048


class Content(BaseModel):
    """What is signed."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", populate_by_name=True)

    swarm: Annotated[str, Field(max_length=80)]
    roll: Annotated[str, Field(pattern="^[0-9a-f]{0,80}$")]
    round: Count
    before: Digest
    digest: Digest


@dataclass(frozen=True)
class Subject:
    """What is signed for: one attempt to end one round.

    Attributes:
        swarm_id: of the swarm.
        roll: id of the roll, and what of its group more; empty: the voter was alone.
        round: rounds completed before.
        before: digest of the state that it begins with.
    """

    swarm_id: str
    roll: str
    round: int
    before: str


@dataclass(frozen=True)
class Pledge:
    """A member's word, signed.

    Attributes:
        subject: what it is about.
        digest: what is signed for; see the kinds.
        maker: peer id of who has signed.
        data: as it was signed.
    """

    kind: ClassVar[str]
    content: ClassVar[type[Content]]

    subject: Subject
    digest: str
    maker: str
    data: bytes

    @cached_property
    def id(self) -> str:
        """What it says, and who says it: signatures of it may differ."""
        return hashlib.sha256(f"{self.maker} {self.digest}".encode()).hexdigest()

    @classmethod
    def sign(cls, subject: Subject, digest: str, me: str, key: RSAPrivateKey) -> Self:
        """That of the owner of ``key``, whose peer id is ``me``."""
        content = cls.content(
            swarm=subject.swarm_id,
            roll=subject.roll,
            round=subject.round,
            before=subject.before,
            digest=digest,
        )
        return cls(subject, digest, me, sign(key, cls.kind, content.model_dump(by_alias=True)))

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Read another peer's.

        Raises:
            ValueError: it is malformed, or its signature is wrong.
        """
        if len(data) > PLEDGE_BYTES_MAX:
            raise ValueError(f"a {cls.kind} is too long")
        maker, fields = read_signed(data, cls.kind)
        content = cls.content.model_validate(fields, by_alias=True, by_name=False)
        subject = Subject(content.swarm, content.roll, content.round, content.before)
        return cls(subject, content.digest, maker, data)


class _ListContent(Content):
    roll: Annotated[str, Field(pattern="^[0-9a-f]{2,80}$", alias="after")]
    digest: Digest = Field(alias="list")


class Accepting(Pledge):
    """An elector's word that it has accepted a list, after another one or as its first; see `SharingGroup`.

    It accepts one list after each, never two; those of more than half make it the list.
    """

    kind, content = "acceptance", _ListContent


NO_STATE = "0" * 64
"""What a member votes for that has computed none: it need not be waited for."""


class _Content(Content):
    digest: Digest = Field(alias="after")


class Vote(Pledge):
    """For the digest of the state that follows, as computed; of the one before, if it is not to be taken.

    Or for `NO_STATE`.
    """

    kind, content = "vote", _Content


PROOF_BYTES_MAX = 2 * PLEDGE_BYTES_MAX + 32
KINDS: dict[str, type[Pledge]] = {each.kind: each for each in (Vote, Accepting)}


@dataclass(frozen=True)
class Proof:
    """Two messages that contradict each other.

    Attributes:
        offender: peer id of who has signed both.
        swarm_id: of the swarm in which it has.
        data: their kind, and both, as they travel and are kept.
    """

    offender: str
    swarm_id: str
    data: bytes

    @classmethod
    def of(cls, one: Pledge, other: Pledge) -> Proof:
        """What two pledges of one member prove: two states, or lists after one.

        Raises:
            ValueError: nothing.
        """
        kind = one.kind
        if not one.subject.roll:
            # Whoever was alone and goes back to a checkpoint, after a crash, honestly does the round again.
            raise ValueError(f"{kind}s of one who was alone")
        if one.maker != other.maker:
            raise ValueError(f"two {kind}s of two peers")
        if (kind, one.subject) != (other.kind, other.subject) or one.digest == other.digest:
            raise ValueError(f"two {kind}s that do not contradict each other")
        return cls(one.maker, one.subject.swarm_id, bytes(msgpack.packb([kind, one.data, other.data])))

    @classmethod
    def read(cls, data: bytes, swarm_id: str) -> Proof:
        """Read another peer's, or a file's, and check it.

        Raises:
            ValueError: it is malformed, of another swarm, or proves nothing; or a signature is wrong.
        """
        if len(data) > PROOF_BYTES_MAX:
            raise ValueError("a proof is too long")
        fields = unpack(data)
        if not isinstance(fields, list) or [type(each) for each in fields] != [str, bytes, bytes]:
            raise ValueError("a proof is malformed")
        kind, *both = fields
        if kind not in KINDS:
            raise ValueError("a proof of an unknown kind")
        proof = cls.of(*map(KINDS[kind].read, both))
        if proof.swarm_id != swarm_id:
            raise ValueError("a proof of another swarm")
        return proof
