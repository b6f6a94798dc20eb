"""The group of a round that shares its contributions: who is in it, and who brings what."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from dupt_swarm.network.averaging.agreement import Decision
from dupt_swarm.network.averaging.ballots import SignedList
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.replica.contribution import Claim


@dataclass(frozen=True)
class SharingGroup:
    """The members by place: sorted by peer id, so that contributions have one order for all.

    Attributes:
        group_id: as matchmaking drew it, hexadecimal.
        claim: of our own contribution: round and state are the whole group's.
        statements: one of each member.
        callable: peer ids of those that others can call.
    """

    group_id: str
    claim: Claim
    statements: tuple[Statement, ...]
    callable: frozenset[str]

    @cached_property
    def members(self) -> list[str]:
        """Peer ids."""
        return [each.maker for each in self.statements]

    @cached_property
    def digests(self) -> list[str]:
        """Of the contributions."""
        return [each.digest for each in self.statements]

    @cached_property
    def order(self) -> list[int]:
        """The places of those who coordinate the agreement, in an order that nobody chooses."""

        def drawn(place: int) -> bytes:
            return hashlib.sha256(f"{self.group_id} {self.members[place]}".encode()).digest()

        return sorted((i for i, each in enumerate(self.members) if each in self.callable), key=drawn)

    def signed_list(self, decision: Decision) -> SignedList:
        """``decision`` as its coordinator signs it."""
        return SignedList(
            signer=self.coordinator_of(decision.ballot),
            group=self.group_id,
            round=self.claim.round,
            state=self.claim.state,
            ballot=decision.ballot,
            contributions=tuple(self.digests[place] for place in decision.choice),
            accepted=tuple(self.members[place] for place in decision.accepted),
        )

    def check_list(self, data: bytes) -> Decision:
        """The decision that ``data`` is.

        Raises:
            ValueError: it is not this group's, or not signed by the coordinator of its ballot.
        """
        found = SignedList.read(data)
        about = (found.group, found.round, found.state, found.signer)
        if about != (
            self.group_id,
            self.claim.round,
            self.claim.state,
            self.coordinator_of(found.ballot),
        ):
            raise ValueError("a list of another group, or of another coordinator")
        return found.decision(self.digests, self.members)

    def coordinator_of(self, ballot: int) -> str:
        """The peer id of who coordinates ``ballot``."""
        return self.members[self.order[ballot % len(self.order)]]
