"""What the members of a group tell each other to agree on its contributions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from pydantic import Field

from dupt_swarm.fields import Count
from dupt_swarm.network.p2p.rpc import Message
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Signed
from dupt_swarm.replica.signed import as_text, from_text

Places = tuple[int, ...]
Key = tuple[int, Places]
"""Ballot and choice."""


@dataclass(frozen=True)
class Acceptance:
    """A list that a member has accepted.

    Attributes:
        ballot: in which it was proposed.
        choice: the places in the group, ascending, of those whose contributions count.
        after: the key of the one that it accepted before; None: it had accepted none.
        signed: this, with the member's signature.
    """

    ballot: int
    choice: Places
    after: Key | None = field(default=None, compare=False)
    signed: bytes = field(default=b"", compare=False, repr=False)

    @property
    def key(self) -> Key:
        """What tells it from others of the same member."""
        return self.ballot, self.choice


@dataclass(frozen=True)
class Report:
    """What a member tells the coordinator of its ballot.

    Attributes:
        ballot: it will accept nothing of an earlier one.
        held: the places of those whose contributions it holds.
        accepted: the last list that it accepted; None: none so far.
    """

    ballot: int
    held: frozenset[int]
    accepted: Acceptance | None = None

    def after(self, before: Report) -> Report:
        """What the member has said in its last ballot: messages may overtake one another."""
        held = before.held | self.held
        if before.ballot != self.ballot:
            return replace(max(before, self, key=lambda each: each.ballot), held=held)
        accepted = [each for each in (before.accepted, self.accepted) if each is not None]
        return replace(self, held=held, accepted=max(accepted, key=lambda each: each.ballot, default=None))


@dataclass(frozen=True)
class Decision:
    """The list that counts.

    Attributes:
        ballot: in which it was decided.
        choice: as in `Acceptance`.
        accepted: the places of electors that have accepted it: more than half.
        signed: their signed acceptances, in this order.
    """

    ballot: int
    choice: Places
    accepted: Places
    signed: tuple[bytes, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Answer:
    """What a member answers.

    Attributes:
        ballot: the one that it has come to.
        proposal: what it proposes in that one, if it coordinates it.
        decision: what was decided, if it knows.
        holders: for each contribution, who is known to hold it.
    """

    ballot: int
    proposal: Places | None = None
    decision: Decision | None = None
    holders: tuple[frozenset[int], ...] = ()


def suffices(choice: Collection[int], electors: frozenset[int]) -> bool:
    """Whether at least half of the electors' contributions are on a list: of many, never only one."""
    return 2 * len(electors.intersection(choice)) >= len(electors)


# Two sets of places and a signature; who holds what, of 256 members, and what half of them have signed.
REPORT_BYTES_MAX, ANSWER_BYTES_MAX = 1 << 12, 1 << 18

PlaceBits = Annotated[str, Field(pattern=f"^[0-9a-f]{{1,{MEMBERS_MAX // 4}}}$")]
"""A set of places: a number whose bit p says whether p is in it, hexadecimal."""
GroupId = Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]


class AcceptanceMessage(Message):
    """An `Acceptance`."""

    ballot: Count
    choice: PlaceBits
    after: tuple[Count, PlaceBits] | None = Field(default=None, strict=False)
    signed: Signed

    @classmethod
    def of(cls, acceptance: Acceptance) -> AcceptanceMessage:
        """The message of ``acceptance``."""
        after = acceptance.after
        return cls(
            ballot=acceptance.ballot,
            choice=_bits(acceptance.choice),
            after=None if after is None else (after[0], _bits(after[1])),
            signed=as_text(acceptance.signed),
        )

    def acceptance(self, size: int) -> Acceptance:
        """What it says, to a group of ``size``; the signature is not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        after = None if self.after is None else (self.after[0], _places(self.after[1], size))
        return Acceptance(self.ballot, _places(self.choice, size), after, from_text(self.signed))


class DecisionMessage(Message):
    """A `Decision`: the list, and who has signed that it has accepted it."""

    ballot: Count
    choice: PlaceBits
    accepted: PlaceBits
    signed: Annotated[list[Signed], Field(max_length=MEMBERS_MAX)]

    @classmethod
    def of(cls, decision: Decision) -> DecisionMessage:
        """The message of ``decision``."""
        return cls(
            ballot=decision.ballot,
            choice=_bits(decision.choice),
            accepted=_bits(decision.accepted),
            signed=list(map(as_text, decision.signed)),
        )

    def decision(self, size: int) -> Decision:
        """What it says, to a group of ``size``; the signatures are not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        signed = tuple(map(from_text, self.signed))
        return Decision(self.ballot, _places(self.choice, size), _places(self.accepted, size), signed)


class ReportMessage(Message):
    """A `Report` in a group."""

    group: GroupId
    ballot: Count
    held: PlaceBits
    accepted: AcceptanceMessage | None = None

    @classmethod
    def of(cls, group: str, report: Report) -> ReportMessage:
        """The message of ``report``."""
        accepted = None if report.accepted is None else AcceptanceMessage.of(report.accepted)
        return cls(group=group, ballot=report.ballot, held=_bits(report.held), accepted=accepted)

    def report(self, size: int) -> Report:
        """What it says, to a group of ``size``; the signature is not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        accepted = None if self.accepted is None else self.accepted.acceptance(size)
        return Report(self.ballot, frozenset(_places(self.held, size)), accepted)


class AnswerMessage(Message):
    """An `Answer`."""

    elements_max: ClassVar[int] = 2 * MEMBERS_MAX + 64

    ballot: Count
    proposal: PlaceBits | None = None
    holders: Annotated[list[PlaceBits], Field(max_length=MEMBERS_MAX)]
    decision: DecisionMessage | None = None

    @classmethod
    def of(cls, answer: Answer) -> AnswerMessage:
        """The message of ``answer``."""
        return cls(
            ballot=answer.ballot,
            proposal=None if answer.proposal is None else _bits(answer.proposal),
            holders=list(map(_bits, answer.holders)),
            decision=None if answer.decision is None else DecisionMessage.of(answer.decision),
        )

    def answer(self, size: int) -> Answer:
        """What it says, to a group of ``size``; signatures are not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        if len(self.holders) != size:
            raise ValueError("an answer about another group")
        proposal = None if self.proposal is None else _places(self.proposal, size)
        decision = None if self.decision is None else self.decision.decision(size)
        holders = tuple(frozenset(_places(who, size)) for who in self.holders)
        return Answer(self.ballot, proposal, decision, holders)


def _bits(places: Iterable[int]) -> str:
    return f"{sum(1 << place for place in set(places)):x}"


def _places(bits: str, size: int) -> Places:
    number = int(bits, 16)
    if number >> size:
        raise ValueError("a member that there is not")
    return tuple(place for place in range(size) if number >> place & 1)
