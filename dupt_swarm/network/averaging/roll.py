"""The roll of a round: who ends it together, with which contributions; signed by the peer that called it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.averaging.statement import Statement
from dupt_swarm.network.members.signed import read_signed, sign
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.log_entry import MEMBERS_MAX, Count, Digest

KIND: Literal["roll"] = "roll"
ID_DIGITS = 40


class _Content(BaseModel):
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
        content = _Content(round=claim.round, state=claim.state, statements=[each.id for each in ordered])
        return cls(me, ordered, sign(key, KIND, content.model_dump()))

    @classmethod
    def read(cls, data: bytes, statements: Sequence[Statement]) -> Roll:
        """Read another peer's, with the statements that it is about, in its order.

        Raises:
            ValueError: it is malformed, or names other statements, or its signature is wrong.
        """
        coordinator, fields = read_signed(data, KIND)
        content = _Content.model_validate(fields)
        if [each.id for each in statements] != content.statements:
            raise ValueError("a roll of other statements")
        roll = cls(coordinator, tuple(statements), data)
        if sorted(set(roll.members)) != roll.members:
            raise ValueError("a roll in another order, or with a member twice")
        if {(each.claim.round, each.claim.state) for each in statements} != {(content.round, content.state)}:
            raise ValueError("a roll of members at different states")
        return roll
