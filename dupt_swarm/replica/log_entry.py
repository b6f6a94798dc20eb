"""An entry of the log of rounds: all that is needed, beside the blobs it names, to compute a round again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dupt_swarm.fields import Count, Digest, PeerId
from dupt_swarm.manifest.tables import ExchangeName

LOG_BYTES_MAX = 1 << 20  # a round of 24 members with signed statements and votes has 50 kB
MEMBERS_MAX = 256

Signed = Annotated[str, Field(pattern="^[A-Za-z0-9+/=]{0,32768}$", description="a signed message, base 64")]


class _Plain(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Input(_Plain):
    """One blob that went into a round: a contribution, or the average."""

    digest: Digest
    tokens: Count = Field(description="those that it stands for")
    maker: PeerId | Literal[""] = Field(default="", description="of a contribution")
    statement: Signed = Field(default="", description="of its maker")


class LogEntry(_Plain):
    """One round: which state it led from and to, and what went into it, in the order of the arithmetic."""

    round: Count = Field(description="of the state that follows")
    before: Digest
    after: Digest
    exchange: ExchangeName
    members: Annotated[tuple[PeerId, ...], Field(max_length=MEMBERS_MAX, strict=False)] = Field(
        description="of the group"
    )
    inputs: Annotated[tuple[Input, ...], Field(min_length=1, max_length=MEMBERS_MAX, strict=False)]
    votes: Annotated[tuple[Signed, ...], Field(max_length=MEMBERS_MAX, strict=False)] = Field(
        default=(), description="of members, for the state that follows; who keeps the entry may have others"
    )

    @property
    def digests(self) -> list[str]:
        """Of the blobs."""
        return [each.digest for each in self.inputs]

    def to_bytes(self) -> bytes:
        """As it travels."""
        return self.model_dump_json(exclude_defaults=True).encode()


_LOG = TypeAdapter(list[LogEntry])


def parse_log(data: bytes) -> list[LogEntry]:
    """Read another peer's log.

    Raises:
        ValueError: it is too long or malformed, or an entry does not follow from the one before.
    """
    if len(data) > LOG_BYTES_MAX:
        raise ValueError("the log is too long")
    try:
        entries = _LOG.validate_json(data)
    except ValidationError as error:
        raise ValueError(f"not a log of rounds: {error.error_count()} problems") from error
    for before, after in pairwise(entries):
        if (after.before, after.round) != (before.after, before.round + 1):
            raise ValueError("the log of rounds has a gap")
    return entries


def log_bytes(entries: Sequence[LogEntry]) -> bytes:
    """``entries`` as they travel: the last ones, as many as are allowed."""
    parts: list[bytes] = []
    left = LOG_BYTES_MAX - 2
    for entry in reversed(entries):
        data = entry.to_bytes()
        left -= len(data) + 1
        if left < 0:
            break
        parts.insert(0, data)
    return b"[" + b",".join(parts) + b"]"
