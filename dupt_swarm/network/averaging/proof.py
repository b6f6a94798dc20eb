"""Proof that a peer contradicts itself on one roll: two votes or two acceptances, as it signed them.

Whoever holds it convinces everybody else, and nobody can make it but the owner of the key.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from dupt_swarm.network.averaging.accepting import Accepting
from dupt_swarm.network.averaging.pledge import PLEDGE_BYTES_MAX, Pledge
from dupt_swarm.network.averaging.votes import Vote
from dupt_swarm.network.p2p.plain_msgpack import unpack

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
