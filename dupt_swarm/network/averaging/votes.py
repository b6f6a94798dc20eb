"""The votes on a round: each member signs for the state that it has computed.

Nobody takes it before enough others have. So nothing that one peer does, computes or says by itself changes a
replica state, however it has come about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.members.electorate import Electorate
from dupt_swarm.network.members.signed import read_signed, sign
from dupt_swarm.replica.log_entry import Count, Digest

KIND: Literal["vote"] = "vote"
VOTE_BYTES_MAX = 2048


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    swarm: Annotated[str, Field(max_length=80)]
    roll: Annotated[str, Field(pattern="^[0-9a-f]{0,80}$")]
    round: Count
    before: Digest
    after: Digest


@dataclass(frozen=True)
class Subject:
    """What is voted on: one attempt to end one round.

    Attributes:
        swarm_id: of the swarm.
        roll: id of the roll; empty: the voter was alone.
        round: rounds completed before.
        before: digest of the state that it begins with.
    """

    swarm_id: str
    roll: str
    round: int
    before: str


@dataclass(frozen=True)
class Vote:
    """A member's vote.

    Attributes:
        subject: what it is about.
        after: digest of the state that follows, as the voter has computed it; of the one before, if it is not
            to be taken.
        voter: its peer id.
        data: as it was signed.
    """

    subject: Subject
    after: str
    voter: str
    data: bytes

    @cached_property
    def id(self) -> str:
        """What it says, and who says it: signatures of it may differ."""
        return hashlib.sha256(f"{self.voter} {self.after}".encode()).hexdigest()

    @classmethod
    def cast(cls, subject: Subject, after: str, me: str, key: RSAPrivateKey) -> Vote:
        """The vote of the owner of ``key``, whose peer id is ``me``."""
        content = _Content(
            swarm=subject.swarm_id,
            roll=subject.roll,
            round=subject.round,
            before=subject.before,
            after=after,
        )
        return cls(subject, after, me, sign(key, KIND, content.model_dump()))

    @classmethod
    def read(cls, data: bytes) -> Vote:
        """Read another peer's.

        Raises:
            ValueError: it is malformed, or its signature is wrong.
        """
        if len(data) > VOTE_BYTES_MAX:
            raise ValueError("a vote is too long")
        voter, fields = read_signed(data, KIND)
        content = _Content.model_validate(fields)
        subject = Subject(content.swarm, content.roll, content.round, content.before)
        return cls(subject, content.after, voter, data)


Contradiction = tuple[Vote, Vote]
"""Two votes of one peer for two states."""


class Box:
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
        if vote.subject != self.subject or vote.voter not in self.members:
            raise ValueError("a vote of another group")
        first = self.votes.setdefault(vote.voter, vote)
        if first.after != vote.after:
            self.contradictions.setdefault(vote.voter, (first, vote))

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
            if vote.after == after and voter not in self.contradictions
        }
        if not electorate.is_quorum(found, self.members):
            return ()
        return tuple(vote for _, vote in sorted(found.items()))

    def is_lost(self, after: str, electorate: Electorate) -> bool:
        """Whether ``after`` will not get a quorum, whoever still votes for it."""
        against = {voter for voter, vote in self.votes.items() if vote.after != after}
        possible = (self.members - against) - self.contradictions.keys()
        return not electorate.is_quorum(possible, self.members)

    def others(self, after: str, electorate: Electorate) -> tuple[str, ...]:
        """Those whose vote counts, and is for yet another state: neither ``after`` nor the one before."""
        counted = electorate.of(self.members) - self.contradictions.keys()
        known = (after, self.subject.before)
        return tuple(who for who, vote in self.votes.items() if who in counted and vote.after not in known)

    def rejects(self, electorate: Electorate) -> bool:
        """Whether somebody whose vote counts wants the swarm to stay at the state before."""
        voters = electorate.of(self.members) - self.contradictions.keys()
        return any(vote.after == self.subject.before for who, vote in self.votes.items() if who in voters)
