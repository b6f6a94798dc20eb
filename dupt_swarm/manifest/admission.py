"""The table `[admission]`: whom the swarm admits."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from dupt_swarm.manifest.table import Table
from dupt_swarm.manifest.tables import HASH


class Admission(Table):
    """Whom the swarm admits, and who organises it; docs/decisions/security.md says why."""

    kind: Literal["open", "invite"] = Field(
        default="open", description="`open`: everybody; `invite`: whom the organiser has invited"
    )
    organiser: str = Field(
        default="", description="the organiser's public key, 64 hexadecimal digits; empty: nobody organises"
    )

    @field_validator("organiser")
    @classmethod
    def _hexadecimal(cls, value: str) -> str:
        if value and not HASH.fullmatch(value):
            raise ValueError(
                "must be 64 lower-case hexadecimal digits, or empty; `dupt-peer new` fills it in"
            )
        return value

    @model_validator(mode="after")
    def _somebody_invites(self) -> Self:
        if self.kind == "invite" and not self.organiser:
            raise ValueError(
                'kind = "invite" needs an organiser, whose public key `dupt-peer new` fills in; or admit '
                'everybody with kind = "open"'
            )
        return self
