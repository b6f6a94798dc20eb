"""What the organiser says of a swarm now and then: which state it is at, and who votes on the next one.

So a newcomer need not believe the peers that it was told of: it believes these voters, wherever they are now.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dupt_swarm.fields import DIGEST, PEER_ID
from dupt_swarm.organiser.signed import read, sign

KIND = "attestation"
VOTERS_MAX = 512
TEXT_CHARS_MAX = 1 << 16


@dataclass(frozen=True)
class Attestation:
    """A state of a swarm.

    Attributes:
        swarm_id: of the swarm.
        round: rounds completed.
        digest: of the state.
        voters: ids of those who vote on the next one, sorted.
    """

    swarm_id: str
    round: int
    digest: str
    voters: tuple[str, ...]

    def signed(self, organiser: Ed25519PrivateKey) -> str:
        """It with the organiser's signature, as text."""
        content = json.dumps([self.swarm_id, self.round, self.digest, *self.voters]).encode()
        return base64.b64encode(sign(organiser, KIND, content)).decode()

    @classmethod
    def read(cls, text: str, organiser: bytes, swarm_id: str) -> Attestation:
        """Read one that the ``organiser`` (a public key) has signed for this swarm.

        Raises:
            ValueError: it is none, or another's, or of another swarm.
        """
        if len(text) > TEXT_CHARS_MAX:
            raise ValueError("an attestation is too long")
        content = read(base64.b64decode(text, validate=True), KIND, organiser)
        match json.loads(content):
            case [str() as swarm, int() as round, str() as digest, *voters] if (
                swarm == swarm_id
                and 0 <= round < 1 << 62
                and DIGEST.fullmatch(digest)
                and len(voters) <= VOTERS_MAX
                and all(isinstance(each, str) and PEER_ID.fullmatch(each) for each in voters)
            ):
                return cls(swarm, round, digest, tuple(voters))
        raise ValueError("an attestation of another swarm, or none")
