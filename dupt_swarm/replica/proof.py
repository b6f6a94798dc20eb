"""Proof that a peer has signed what contradicts itself: it convinces all, and nobody else can make it."""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from dupt_swarm.replica.link import Word, contradict
from dupt_swarm.replica.plain import unpack
from dupt_swarm.replica.signed import SIGNED_BYTES_MAX
from dupt_swarm.replica.signed_words import KINDS, Words

PROOF_BYTES_MAX = 2 * SIGNED_BYTES_MAX + 64
TYPES: dict[str, type[Word]] = {kind: type for type, (kind, _) in KINDS.items()}


@dataclass(frozen=True)
class Proof:
    """Two words that contradict each other.

    Attributes:
        offender: peer id of who has signed both.
        data: their kinds, and both, as they travel and are kept.
    """

    offender: str
    data: bytes

    @classmethod
    def of(cls, one: Word, other: Word) -> Proof:
        """What two words of one peer prove.

        Raises:
            ValueError: nothing.
        """
        if not contradict(one, other):
            raise ValueError("two words that do not contradict each other")
        kinds = [KINDS[type(each)][0] for each in (one, other)]
        return cls(one.maker, bytes(msgpack.packb([*kinds, one.signed, other.signed])))

    @classmethod
    def read(cls, data: bytes, swarm_id: str) -> Proof:
        """Read another peer's, or a file's, and check it.

        Raises:
            ValueError: it is malformed, of another swarm, or proves nothing; or a signature is wrong.
        """
        if len(data) > PROOF_BYTES_MAX:
            raise ValueError("a proof is too long")
        fields = unpack(data)
        if not isinstance(fields, list) or [type(each) for each in fields] != [str, str, bytes, bytes]:
            raise ValueError("a proof is malformed")
        *kinds, one, other = fields
        if not TYPES.keys() >= {*kinds}:
            raise ValueError("a proof of an unknown kind")
        words = Words(swarm_id)
        return cls.of(words.read(one, TYPES[kinds[0]]), words.read(other, TYPES[kinds[1]]))
