"""Proof that a peer has voted for two states on one roll: the two votes, as it signed them.

Whoever holds it convinces everybody else, and nobody can make it but the owner of the key.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from dupt_swarm.network.averaging.votes import VOTE_BYTES_MAX, Vote
from dupt_swarm.network.p2p.plain_msgpack import unpack

PROOF_BYTES_MAX = 2 * VOTE_BYTES_MAX + 16


@dataclass(frozen=True)
class Proof:
    """Two votes that contradict each other.

    Attributes:
        offender: peer id of who has signed both.
        data: the votes, as they travel and are kept.
    """

    offender: str
    data: bytes

    @classmethod
    def of(cls, one: Vote, other: Vote) -> Proof:
        """What two votes prove.

        Raises:
            ValueError: nothing.
        """
        if one.voter != other.voter:
            raise ValueError("two votes of two voters")
        if one.subject != other.subject or one.after == other.after:
            raise ValueError("two votes that do not contradict each other")
        if not one.subject.roll:
            # Whoever was alone and goes back to a checkpoint, after a crash, honestly does the round again.
            raise ValueError("two votes of one who was alone")
        return cls(one.voter, bytes(msgpack.packb([one.data, other.data])))

    @classmethod
    def read(cls, data: bytes, swarm_id: str) -> Proof:
        """Read another peer's, or a file's, and check it.

        Raises:
            ValueError: it is malformed, of another swarm, or proves nothing; or a signature is wrong.
        """
        if len(data) > PROOF_BYTES_MAX:
            raise ValueError("a proof is too long")
        fields = unpack(data)
        if not isinstance(fields, list) or [type(each) for each in fields] != [bytes, bytes]:
            raise ValueError("a proof is malformed")
        one, other = map(Vote.read, fields)
        if one.subject.swarm_id != swarm_id:
            raise ValueError("a proof of another swarm")
        return cls.of(one, other)
