"""A member's signed statement: which contribution it brings to which round."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from hivemind.utils.crypto import RSAPrivateKey
from pydantic import BaseModel, ConfigDict, Field

from dupt_swarm.network.members.signed import read_signed, sign
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Count, Digest

KIND: Literal["contribution"] = "contribution"
STATEMENT_BYTES_MAX = 2048


class _Content(BaseModel):
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
        content = _Content(
            swarm=swarm_id,
            round=claim.round,
            state=claim.state,
            contribution=digest,
            tokens=claim.tokens,
            callable=callable,
        )
        return cls(claim, digest, callable, sign(key, KIND, content.model_dump()))

    @classmethod
    def read(cls, data: bytes, swarm_id: str) -> Statement:
        """Read another peer's.

        Raises:
            ValueError: it is malformed or of another swarm, or its signature is wrong.
        """
        if len(data) > STATEMENT_BYTES_MAX:
            raise ValueError("a statement is too long")
        maker, fields = read_signed(data, KIND)
        content = _Content.model_validate(fields)
        if content.swarm != swarm_id:
            raise ValueError("the statement is of another swarm")
        claim = Claim(content.round, content.state, content.tokens, maker)
        return cls(claim, content.contribution, content.callable, data)
