"""The group of a round that shares its contributions: who is in it, and who brings what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dupt_swarm.network.averaging.agreement import Decision, suffices
from dupt_swarm.network.averaging.ballots import SignedList
from dupt_swarm.network.averaging.roll import Roll
from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.voters import Voters


@dataclass(frozen=True)
class SharingGroup:
    """The members by place, in the order of their peer ids, so that contributions have one order for all.

    Attributes:
        roll: who they are.
        voters: of the state that the round begins with.
    """

    roll: Roll
    voters: Voters

    @property
    def group_id(self) -> str:
        """Hexadecimal."""
        return self.roll.id

    @property
    def statements(self) -> tuple[Statement, ...]:
        """One of each member."""
        return self.roll.statements

    @property
    def members(self) -> list[str]:
        """Peer ids."""
        return self.roll.members

    @cached_property
    def digests(self) -> list[str]:
        """Of the contributions."""
        return [each.digest for each in self.statements]

    @cached_property
    def electors(self) -> frozenset[int]:
        """The places of those of whom more than half decide which contributions count.

        They are the voters among them; strangers do not hold up a round, unless there are only such.
        """
        voters = frozenset(place for place, peer in enumerate(self.members) if peer in self.voters)
        return voters or frozenset(range(len(self.members)))

    @cached_property
    def order(self) -> list[int]:
        """The places of those who coordinate the agreement, in an order that nobody chooses.

        They are of those who decide, as far as these can be called.
        """
        callable = {place for place, each in enumerate(self.statements) if each.callable}
        peers = (self.members[place] for place in callable & self.electors or callable)
        return [self.members.index(peer) for peer in drawn(peers, self.roll.id)]

    def signed_list(self, decision: Decision) -> SignedList:
        """``decision`` as its coordinator signs it."""
        return SignedList(
            signer=self.coordinator_of(decision.ballot),
            group=self.group_id,
            round=self.roll.claim.round,
            state=self.roll.claim.state,
            ballot=decision.ballot,
            makers=tuple(self.members[place] for place in decision.choice),
            accepted=tuple(self.members[place] for place in decision.accepted),
        )

    def check_list(self, data: bytes) -> Decision:
        """The decision that ``data`` is.

        Raises:
            ValueError: it is not this group's, not signed by the coordinator of its ballot, or of few.
        """
        found = SignedList.read(data)
        about = (found.group, found.round, found.state, found.signer)
        if about != (
            self.group_id,
            self.roll.claim.round,
            self.roll.claim.state,
            self.coordinator_of(found.ballot),
        ):
            raise ValueError("a list of another group, or of another coordinator")
        decision = found.decision(self.members)
        if 2 * len(self.electors.intersection(decision.accepted)) <= len(self.electors):
            raise ValueError("a list that not more than half have accepted")
        if not suffices(decision.choice, self.electors):
            raise ValueError("a list of few of the voters' contributions")
        return decision

    def coordinator_of(self, ballot: int) -> str:
        """The peer id of who coordinates ``ballot``."""
        return self.members[self.order[ballot % len(self.order)]]
