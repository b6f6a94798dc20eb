"""The messages of an agreement as they travel: small JSON, measured before it is parsed."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.averaging.reports import Acceptance, Answer, Decision, Places, Report
from dupt_swarm.network.members.signed import as_text, from_text
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Count, Signed

MESSAGE_BYTES_MAX = 1 << 19  # who holds what, of 256 members, and what more than half of them have signed

Place = Annotated[int, Field(ge=0, lt=MEMBERS_MAX)]
PlaceList = Annotated[list[Place], Field(max_length=MEMBERS_MAX)]
GroupId = Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class AcceptanceMessage(_Message):
    """An `Acceptance`."""

    ballot: Count
    choice: PlaceList
    after: tuple[Count, PlaceList] | None = Field(default=None, strict=False)
    signed: Signed

    @classmethod
    def of(cls, acceptance: Acceptance) -> AcceptanceMessage:
        """The message of ``acceptance``."""
        after = acceptance.after
        return cls(
            ballot=acceptance.ballot,
            choice=list(acceptance.choice),
            after=None if after is None else (after[0], list(after[1])),
            signed=as_text(acceptance.signed),
        )

    def acceptance(self, size: int) -> Acceptance:
        """What it says, to a group of ``size``; the signature is not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        after = None if self.after is None else (self.after[0], _places(self.after[1], size))
        return Acceptance(self.ballot, _places(self.choice, size), after, from_text(self.signed))


class DecisionMessage(_Message):
    """A `Decision`: the list, and who has signed that it has accepted it."""

    ballot: Count
    choice: PlaceList
    accepted: PlaceList
    signed: Annotated[list[Signed], Field(max_length=MEMBERS_MAX)]

    @classmethod
    def of(cls, decision: Decision) -> DecisionMessage:
        """The message of ``decision``."""
        return cls(
            ballot=decision.ballot,
            choice=list(decision.choice),
            accepted=list(decision.accepted),
            signed=list(map(as_text, decision.signed)),
        )

    def decision(self, size: int) -> Decision:
        """What it says, to a group of ``size``; the signatures are not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        signed = tuple(map(from_text, self.signed))
        return Decision(self.ballot, _places(self.choice, size), _places(self.accepted, size), signed)


class ReportMessage(_Message):
    """A `Report` in a group."""

    group: GroupId
    ballot: Count
    held: PlaceList
    accepted: AcceptanceMessage | None = None

    @classmethod
    def of(cls, group: str, report: Report) -> ReportMessage:
        """The message of ``report``."""
        accepted = None if report.accepted is None else AcceptanceMessage.of(report.accepted)
        return cls(group=group, ballot=report.ballot, held=sorted(report.held), accepted=accepted)

    def report(self, size: int) -> Report:
        """What it says, to a group of ``size``; the signature is not checked.

        Raises:
            ValueError: it names members that there are not.
        """
        accepted = None if self.accepted is None else self.accepted.acceptance(size)
        return Report(self.ballot, frozenset(_places(self.held, size)), accepted)


class AnswerMessage(_Message):
    """An `Answer`."""

    ballot: Count
    proposal: PlaceList | None = None
    holders: Annotated[list[PlaceList], Field(max_length=MEMBERS_MAX)]
    decision: DecisionMessage | None = None

    @classmethod
    def of(cls, answer: Answer) -> AnswerMessage:
        """The message of ``answer``."""
        return cls(
            ballot=answer.ballot,
            proposal=None if answer.proposal is None else list(answer.proposal),
            holders=[sorted(who) for who in answer.holders],
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


def _places(places: list[int], size: int) -> Places:
    chosen = tuple(sorted(set(places)))
    if chosen and chosen[-1] >= size:
        raise ValueError("a member that there is not")
    return chosen
