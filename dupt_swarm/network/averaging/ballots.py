"""The messages of an agreement as they travel: small JSON, measured before it is parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.averaging.agreement import Acceptance, Answer, Decision, Places, Report
from dupt_swarm.network.members.signed import read_signed, sign
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Count, Digest, PeerId, Signed

KIND: Literal["list"] = "list"
MESSAGE_BYTES_MAX = 1 << 18  # who holds what, of 256 members

Place = Annotated[int, Field(ge=0, lt=MEMBERS_MAX)]
PlaceList = Annotated[list[Place], Field(max_length=MEMBERS_MAX)]
GroupId = Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class ReportMessage(_Message):
    """A `Report` in a group."""

    group: GroupId
    ballot: Count
    held: PlaceList
    accepted: tuple[Count, PlaceList] | None = Field(default=None, strict=False)

    @classmethod
    def of(cls, group: str, report: Report) -> ReportMessage:
        """The message of ``report``."""
        accepted = None if report.accepted is None else (report.accepted.ballot, list(report.accepted.choice))
        return cls(group=group, ballot=report.ballot, held=sorted(report.held), accepted=accepted)

    def report(self, size: int) -> Report:
        """What it says, to a group of ``size``.

        Raises:
            ValueError: it names members that there are not.
        """
        accepted = (
            None if self.accepted is None else Acceptance(self.accepted[0], _places(self.accepted[1], size))
        )
        return Report(self.ballot, frozenset(_places(self.held, size)), accepted)


class AnswerMessage(_Message):
    """An `Answer`, in which a decision is a `SignedList`."""

    ballot: Count
    proposal: PlaceList | None = None
    holders: Annotated[list[PlaceList], Field(max_length=MEMBERS_MAX)]
    decided: Signed = ""

    @classmethod
    def of(cls, answer: Answer, decided: str) -> AnswerMessage:
        """The message of ``answer``, with its decision as it was signed."""
        proposal = None if answer.proposal is None else list(answer.proposal)
        holders = [sorted(who) for who in answer.holders]
        return cls(ballot=answer.ballot, proposal=proposal, holders=holders, decided=decided)

    def answer(self, size: int) -> Answer:
        """What it says, to a group of ``size``, but for the decision.

        Raises:
            ValueError: it names members that there are not.
        """
        if len(self.holders) != size:
            raise ValueError("an answer about another group")
        proposal = None if self.proposal is None else _places(self.proposal, size)
        holders = tuple(frozenset(_places(who, size)) for who in self.holders)
        return Answer(self.ballot, proposal, None, holders)


class _Content(_Message):
    group: GroupId
    round: Count
    state: Digest
    ballot: Count
    makers: Annotated[list[PeerId], Field(min_length=1, max_length=MEMBERS_MAX)]
    accepted: Annotated[list[PeerId], Field(min_length=1, max_length=MEMBERS_MAX)]


@dataclass(frozen=True)
class SignedList:
    """The list on which a group agreed.

    Attributes:
        signer: peer id of the coordinator that signed it.
        group: the group's id, hexadecimal.
        round: rounds completed before.
        state: digest of the state before.
        ballot: in which it was decided.
        makers: peer ids of those whose contributions count, in the order in which they are added. (Digests
            would not do: anybody may state that of another's.)
        accepted: peer ids of members that are known to have accepted it.
    """

    signer: str
    group: str
    round: int
    state: str
    ballot: int
    makers: tuple[str, ...]
    accepted: tuple[str, ...]

    def sign(self, key: RSAPrivateKey) -> bytes:
        """As it travels, with the key of its signer."""
        content = _Content(
            group=self.group,
            round=self.round,
            state=self.state,
            ballot=self.ballot,
            makers=list(self.makers),
            accepted=list(self.accepted),
        )
        return sign(key, KIND, content.model_dump())

    @classmethod
    def read(cls, data: bytes) -> SignedList:
        """Read another peer's.

        Raises:
            ValueError: it is malformed, or its signature is wrong.
        """
        signer, fields = read_signed(data, KIND)
        content = _Content.model_validate(fields)
        return cls(
            signer=signer,
            group=content.group,
            round=content.round,
            state=content.state,
            ballot=content.ballot,
            makers=tuple(content.makers),
            accepted=tuple(content.accepted),
        )

    def decision(self, members: list[str]) -> Decision:
        """What it says in the terms of the group with these members, by place.

        Raises:
            ValueError: it names others.
        """
        if not {*self.makers, *self.accepted} <= set(members):
            raise ValueError("a list that names others than the group's")
        choice = tuple(sorted(members.index(each) for each in set(self.makers)))
        if [members[place] for place in choice] != list(self.makers):
            raise ValueError("a list in another order")
        accepted = tuple(sorted(members.index(each) for each in set(self.accepted)))
        return Decision(self.ballot, choice, accepted)


def _places(places: list[int], size: int) -> Places:
    chosen = tuple(sorted(set(places)))
    if chosen and chosen[-1] >= size:
        raise ValueError("a member that there is not")
    return chosen
