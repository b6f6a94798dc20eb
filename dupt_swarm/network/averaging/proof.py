"""Proof that a peer contradicts itself on one roll: two votes or two receipts, as it signed them.

Whoever holds it convinces everybody else, and nobody can make it but the owner of the key.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from dupt_swarm.network.averaging import receipt, votes
from dupt_swarm.network.averaging.receipt import RECEIPT_BYTES_MAX, Receipt
from dupt_swarm.network.averaging.votes import VOTE_BYTES_MAX, Subject, Vote
from dupt_swarm.network.p2p.plain_msgpack import unpack

PROOF_BYTES_MAX = 2 * max(VOTE_BYTES_MAX, RECEIPT_BYTES_MAX) + 32


@dataclass(frozen=True)
class _Said:
    """What a peer has signed, whichever kind of message it is in."""

    peer: str
    subject: Subject
    digest: str
    data: bytes


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
    def of_votes(cls, one: Vote, other: Vote) -> Proof:
        """What two votes prove: that a member votes for two states.

        Raises:
            ValueError: nothing.
        """
        if not one.subject.roll:
            # Whoever was alone and goes back to a checkpoint, after a crash, honestly does the round again.
            raise ValueError("votes of one who was alone")
        said = (_Said(each.voter, each.subject, each.after, each.data) for each in (one, other))
        return cls._of(votes.KIND, *said)

    @classmethod
    def of_receipts(cls, one: Receipt, other: Receipt) -> Proof:
        """What two receipts prove: that a reducer has returned two averages of one share.

        Raises:
            ValueError: nothing.
        """
        said = (_Said(each.reducer, each.subject, each.share, each.data) for each in (one, other))
        return cls._of(receipt.KIND, *said)

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
        if kind == votes.KIND:
            proof = cls.of_votes(*map(Vote.read, both))
        elif kind == receipt.KIND:
            proof = cls.of_receipts(*map(Receipt.read, both))
        else:
            raise ValueError("a proof of an unknown kind")
        if proof.swarm_id != swarm_id:
            raise ValueError("a proof of another swarm")
        return proof

    @classmethod
    def _of(cls, kind: str, one: _Said, other: _Said) -> Proof:
        if one.peer != other.peer:
            raise ValueError(f"two {kind}s of two peers")
        if one.subject != other.subject or one.digest == other.digest:
            raise ValueError(f"two {kind}s that do not contradict each other")
        return cls(one.peer, one.subject.swarm_id, bytes(msgpack.packb([kind, one.data, other.data])))
