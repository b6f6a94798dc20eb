"""The votes on a round: each member signs for the state that it has computed.

Nobody takes it before enough others have. So nothing that one peer does, computes or says by itself changes a
replica state, however it has come about.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from dupt_swarm.network.averaging.pledge import Content, Pledge, Subject
from dupt_swarm.network.members.electorate import Electorate
from dupt_swarm.replica.log_entry import Digest

NO_STATE = "0" * 64
"""What a member votes for that has computed none: it need not be waited for."""


class _Content(Content):
    digest: Digest = Field(alias="after")


class Vote(Pledge):
    """For the digest of the state that follows, as computed; of the one before, if it is not to be taken.

    Or for `NO_STATE`.
    """

    kind, content = "vote", _Content


Contradiction = tuple[Vote, Vote]
"""Two votes of one peer for two states."""


class BallotBox:
    """The votes of one group, as they come in.

    Attributes:
        subject: what they are about.
        votes: by voter, the first one of each.
        contradictions: by voter, what proves that it lies.
    """

    def __init__(self, subject: Subject, members: Collection[str]) -> None:
        self.subject, self.members = subject, frozenset(members)
        self.votes: dict[str, Vote] = {}
        self.contradictions: dict[str, Contradiction] = {}

    def add(self, vote: Vote) -> None:
        """Take one.

        Raises:
            ValueError: it is about something else, or of nobody in the group.
        """
        if vote.subject != self.subject or vote.maker not in self.members:
            raise ValueError("a vote of another group")
        first = self.votes.setdefault(vote.maker, vote)
        if first.digest != vote.digest:
            self.contradictions.setdefault(vote.maker, (first, vote))

    @property
    def all(self) -> dict[str, Vote]:
        """By their ids, with those that contradict others."""
        lies = [vote for pair in self.contradictions.values() for vote in pair]
        return {vote.id: vote for vote in (*self.votes.values(), *lies)}

    def certificate(self, after: str, electorate: Electorate) -> tuple[Vote, ...]:
        """The votes for ``after``, if they are a quorum, sorted by voter; those of who lies do not count."""
        found = {
            voter: vote
            for voter, vote in self.votes.items()
            if vote.digest == after and voter not in self.contradictions
        }
        if not electorate.is_quorum(found, self.members):
            return ()
        return tuple(vote for _, vote in sorted(found.items()))

    def is_lost(self, after: str, electorate: Electorate) -> bool:
        """Whether ``after`` will not get a quorum, whoever still votes for it.

        Nobody waits for those who abstain; unless somebody rejects it, so that all see whether enough do.
        """
        possible = {after, NO_STATE} if self.rejects(electorate) else {after}
        against = {voter for voter, vote in self.votes.items() if vote.digest not in possible}
        return not electorate.is_quorum(self.members - against - self.contradictions.keys(), self.members)

    def others(self, after: str, electorate: Electorate) -> tuple[str, ...]:
        """Those whose vote counts, and is neither for ``after`` nor for the state before."""
        counted = electorate.of(self.members) - self.contradictions.keys()
        known = (after, self.subject.before)
        return tuple(who for who, vote in self.votes.items() if who in counted and vote.digest not in known)

    def rejects(self, electorate: Electorate) -> bool:
        """Whether somebody whose vote counts wants the swarm to stay at the state before."""
        voters = electorate.of(self.members) - self.contradictions.keys()
        return any(vote.digest == self.subject.before for who, vote in self.votes.items() if who in voters)
