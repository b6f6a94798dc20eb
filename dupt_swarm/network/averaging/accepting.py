"""What electors sign of the list on which a group agrees: those of more than half make it the list."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dupt_swarm.network.averaging.pledge import Content, Pledge
from dupt_swarm.replica.log_entry import Digest


class _Content(Content):
    roll: Annotated[str, Field(pattern="^[0-9a-f]{2,80}$", alias="after")]
    digest: Digest = Field(alias="list")


class Accepting(Pledge):
    """An elector's word that it has accepted a list, after another one or as its first; see `SharingGroup`.

    It accepts one list after each, never two.
    """

    kind, content = "acceptance", _Content
