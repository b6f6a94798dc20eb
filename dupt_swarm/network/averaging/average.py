"""What every exchange takes and gives: an offer to a group, and the average of the group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hivemind.averaging.group_info import GroupInfo

from dupt_swarm.network.averaging.matchmaking import Member
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.log_entry import Input
from dupt_swarm.replica.next_state import Take


@dataclass(frozen=True)
class Evidence:
    """What the log keeps of a round, so that it can be computed again.

    Attributes:
        inputs: what went into the average, in the order of the arithmetic.
        members: peer ids of the group.
        blobs: of the inputs, by digest.
        agreement: the list on which the group agreed, signed and in base 64; empty: none was needed.
    """

    inputs: tuple[Input, ...]
    members: tuple[str, ...]
    blobs: Mapping[str, Blob]
    agreement: str = ""


@dataclass(frozen=True)
class Average:
    """The outcome of one round's exchange; the average itself was given away part by part.

    Attributes:
        tokens: tokens that went into it; of a failed round, those that should have.
        mates: ids of the other peers of the group.
        reason: why it failed, one word for the metrics; empty: it did not.
        lost: peers that did not do their share.
        included: whether the own contribution is in it.
        evidence: for the log; None if the round failed.
    """

    tokens: int = 0
    mates: tuple[str, ...] = ()
    reason: str = ""
    lost: tuple[str, ...] = ()
    included: bool = True
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Offer:
    """A contribution, ready for a group.

    Attributes:
        contribution: encoded.
        weight: tokens that it stands for.
        round: rounds completed before the one that ends.
        state: digest of the replica state that it started from.
        take: gets the average, part by part as it arrives, in threads; of a failed round some parts, or none.
        statement: what the exchange tells the group of it; empty: nothing.
    """

    contribution: bytes | memoryview
    weight: float
    round: int
    state: str
    take: Take
    statement: bytes = b""


class RoundExchange(Protocol):
    """How contributions become an average; `rounds.exchange` of the manifest names one.

    Attributes:
        rejected: contributions left out here, by reason.
    """

    rejected: Counter[str]

    async def prepare(self, offer: Offer) -> Offer:
        """Make a contribution ready, before the group is looked for."""

    def check(self, member: Member, peer_id: str) -> None:
        """Refuse a member for what it tells of itself, before there is a group.

        Raises:
            ValueError: says why.
        """

    async def alone(self, offer: Offer) -> Average:
        """The average of a round in which there is nobody else: the same arithmetic as in a group."""

    async def average(self, group: GroupInfo, members: list[Member], offer: Offer) -> Average:
        """Average in a group; ``members`` is in the order of ``group.peer_ids``."""


def sum_of_tokens(members: list[Member]) -> int:
    """The tokens that all contributions of a group stand for."""
    return round(sum(member.weight for member in members))
