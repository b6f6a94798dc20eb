"""The receipts of a round: each reducer signs what it has returned to the members, the same for all.

Whoever gets averages takes them only with the reducer's receipt. So two members with different averages hold
proof between them of who has made the difference.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Annotated

from pydantic import Field

from dupt_swarm.network.averaging.pledge import Content, Pledge, Subject
from dupt_swarm.replica.log_entry import Digest


class _Content(Content):
    roll: Annotated[str, Field(pattern="^[0-9a-f]{2,80}$")]
    digest: Digest = Field(alias="share")


class ShareHash:
    """Of what a reducer returns: the bytes of each part and its weight, in order, as they come."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, data: bytes | memoryview, weight: float) -> None:
        """The next part; in a thread, as parts are long."""
        self._hash.update(data)
        self._hash.update(struct.pack("<d", weight))

    @property
    def digest(self) -> str:
        """Of the parts so far: SHA-256, hexadecimal."""
        return self._hash.hexdigest()


class Receipt(Pledge):
    """A reducer's word on its share of the average: the digest of what it has returned; see `ShareHash`.

    It signs one on each roll, never two.
    """

    kind, content = "receipt", _Content

    def check(self, subject: Subject, share: str, reducer: str) -> None:
        """Whether it is of what ``reducer`` has returned here.

        Raises:
            ValueError: it is somebody else's, about something else, or of other averages.
        """
        if self.maker != reducer:
            raise ValueError("a receipt of another reducer")
        if self.subject != subject:
            raise ValueError("a receipt of another group")
        if self.digest != share:
            raise ValueError("a receipt of other averages")
