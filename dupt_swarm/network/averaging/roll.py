"""Who ends a round together: what each member brings, and the roll of all, signed; and the last groups."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Protocol, TypeVar

from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.fields import Count, Digest
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.log_entry import MEMBERS_MAX
from dupt_swarm.replica.signed import read_signed, sign

STATEMENT_KIND: Literal["contribution"] = "contribution"
STATEMENT_BYTES_MAX = 2048


class _StatementContent(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    swarm: Annotated[str, Field(max_length=80)]
    round: Count
    state: Digest
    contribution: Digest | Literal[""] = Field(description="empty where each member gets a share of it only")
    tokens: Annotated[int, Field(ge=1, lt=1 << 62)]
    callable: bool


@dataclass(frozen=True)
class Statement:
    """What a member brings.

    Attributes:
        claim: what the contribution is.
        digest: of the contribution's blob; empty: it has none.
        callable: whether others can call its maker, who then coordinates, or reduces a share.
        data: the statement as it was signed.
    """

    claim: Claim
    digest: str
    callable: bool
    data: bytes

    @property
    def maker(self) -> str:
        """Its peer id."""
        return self.claim.maker

    @cached_property
    def id(self) -> str:
        """Its own digest."""
        return hashlib.sha256(self.data).hexdigest()

    @classmethod
    def make(
        cls, swarm_id: str, claim: Claim, digest: str, key: RSAPrivateKey, *, callable: bool = True
    ) -> Statement:
        """The statement of the owner of ``key``, who is the maker that ``claim`` names."""
        content = _StatementContent(
            swarm=swarm_id,
            round=claim.round,
            state=claim.state,
            contribution=digest,
            tokens=claim.tokens,
            callable=callable,
        )
        return cls(claim, digest, callable, sign(key, STATEMENT_KIND, content.model_dump()))

    @classmethod
    def read(cls, data: bytes, swarm_id: str) -> Statement:
        """Read another peer's.

        Raises:
            ValueError: it is malformed or of another swarm, or its signature is wrong.
        """
        if len(data) > STATEMENT_BYTES_MAX:
            raise ValueError("a statement is too long")
        maker, fields = read_signed(data, STATEMENT_KIND)
        content = _StatementContent.model_validate(fields)
        if content.swarm != swarm_id:
            raise ValueError("the statement is of another swarm")
        claim = Claim(content.round, content.state, content.tokens, maker)
        return cls(claim, content.contribution, content.callable, data)


ROLL_KIND: Literal["roll"] = "roll"
ID_DIGITS = 40
GROUPS_MAX = 4  # are kept


class _RollContent(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    round: Count
    state: Digest
    statements: Annotated[list[Digest], Field(min_length=1, max_length=MEMBERS_MAX)]


@dataclass(frozen=True)
class Roll:
    """Who ends a round together.

    Attributes:
        coordinator: peer id of who called it.
        statements: one of each member, sorted by peer id, so that contributions have one order for all.
        data: as it was signed: the statements by their ids.
    """

    coordinator: str
    statements: tuple[Statement, ...]
    data: bytes

    @cached_property
    def id(self) -> str:
        """Hexadecimal."""
        text = " ".join([self.coordinator, *(each.id for each in self.statements)])
        return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]

    @property
    def claim(self) -> Claim:
        """Of the first member: round and state are those of all."""
        return self.statements[0].claim

    @cached_property
    def members(self) -> list[str]:
        """Peer ids."""
        return [each.maker for each in self.statements]

    def mates_of(self, me: str) -> tuple[str, ...]:
        """The other members."""
        return tuple(peer for peer in self.members if peer != me)

    @cached_property
    def lot(self) -> str:
        """What draws in the group are made with: of it the coordinator has chosen only whom it names.

        Its own statement and its signature it could make anew until it is drawn first. (With somebody else's
        help it still can: two who lie choose the order.)
        """
        others = " ".join(each.id for each in self.statements if each.maker != self.coordinator)
        return hashlib.sha256(others.encode()).hexdigest()

    @cached_property
    def drawn(self) -> list[Statement]:
        """Those of the members, in an order that nobody chooses, another one on each roll."""
        by_maker = {each.maker: each for each in self.statements}
        return [by_maker[maker] for maker in drawn(by_maker, self.lot)]

    @property
    def tokens(self) -> int:
        """Those that all contributions stand for."""
        return sum(each.claim.tokens for each in self.statements)

    @classmethod
    def call(cls, me: str, key: RSAPrivateKey, statements: Sequence[Statement]) -> Roll:
        """The roll of those who have made ``statements``, which are about one state."""
        ordered = tuple(sorted(statements, key=lambda each: each.maker))
        claim = ordered[0].claim
        content = _RollContent(round=claim.round, state=claim.state, statements=[each.id for each in ordered])
        return cls(me, ordered, sign(key, ROLL_KIND, content.model_dump()))

    @classmethod
    def read(cls, data: bytes, statements: Sequence[Statement]) -> Roll:
        """Read another peer's, with the statements that it is about, in its order.

        Raises:
            ValueError: it is malformed, or names other statements, or its signature is wrong.
        """
        coordinator, fields = read_signed(data, ROLL_KIND)
        content = _RollContent.model_validate(fields)
        if [each.id for each in statements] != content.statements:
            raise ValueError("a roll of other statements")
        roll = cls(coordinator, tuple(statements), data)
        if sorted(set(roll.members)) != roll.members:
            raise ValueError("a roll in another order, or with a member twice")
        if {(each.claim.round, each.claim.state) for each in statements} != {(content.round, content.state)}:
            raise ValueError("a roll of members at different states")
        return roll


class _Group(Protocol):
    @property
    def members(self) -> Collection[str]: ...


Group = TypeVar("Group", bound=_Group)


class LastGroups(dict[str, Group]):
    """What is kept of our last groups, by the ids of their rolls: members that are late may still ask."""

    def keep(self, roll_id: str, group: Group) -> None:
        """A new one; the oldest goes."""
        self[roll_id] = group
        for oldest in list(self)[:-GROUPS_MAX]:
            del self[oldest]

    def asked_of(self, roll_id: str, caller: str) -> Group:
        """The group that ``caller`` asks about, as one of its members.

        Raises:
            CallError: it is none, or the group is not kept.
        """
        group = self.get(roll_id)
        if group is None:
            raise CallError(Refusal.NOT_HELD, "no such group is known here")
        if caller not in group.members:
            raise CallError(Refusal.NOT_ALLOWED, "nobody in the group asks")
        return group

    def has_member(self, peer_id: str) -> bool:
        """Whether it is of one of them."""
        return any(peer_id in group.members for group in self.values())
