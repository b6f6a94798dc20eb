"""What the members of a group tell each other to agree on its contributions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

Places = tuple[int, ...]
Key = tuple[int, Places]
"""Ballot and choice."""


@dataclass(frozen=True)
class Acceptance:
    """A list that a member has accepted.

    Attributes:
        ballot: in which it was proposed.
        choice: the places in the group, ascending, of those whose contributions count.
        after: the key of the one that it accepted before; None: it had accepted none.
        signed: this, with the member's signature.
    """

    ballot: int
    choice: Places
    after: Key | None = field(default=None, compare=False)
    signed: bytes = field(default=b"", compare=False, repr=False)

    @property
    def key(self) -> Key:
        """What tells it from others of the same member."""
        return self.ballot, self.choice


@dataclass(frozen=True)
class Report:
    """What a member tells the coordinator of its ballot.

    Attributes:
        ballot: it will accept nothing of an earlier one.
        held: the places of those whose contributions it holds.
        accepted: the last list that it accepted; None: none so far.
    """

    ballot: int
    held: frozenset[int]
    accepted: Acceptance | None = None

    def after(self, before: Report) -> Report:
        """What the member has said in its last ballot: messages may overtake one another."""
        held = before.held | self.held
        if before.ballot != self.ballot:
            return replace(max(before, self, key=lambda each: each.ballot), held=held)
        accepted = [each for each in (before.accepted, self.accepted) if each is not None]
        return replace(self, held=held, accepted=max(accepted, key=lambda each: each.ballot, default=None))


@dataclass(frozen=True)
class Decision:
    """The list that counts.

    Attributes:
        ballot: in which it was decided.
        choice: as in `Acceptance`.
        accepted: the places of electors that have accepted it: more than half.
        signed: their signed acceptances, in this order.
    """

    ballot: int
    choice: Places
    accepted: Places
    signed: tuple[bytes, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Answer:
    """What a member answers.

    Attributes:
        ballot: the one that it has come to.
        proposal: what it proposes in that one, if it coordinates it.
        decision: what was decided, if it knows.
        holders: for each contribution, who is known to hold it.
    """

    ballot: int
    proposal: Places | None = None
    decision: Decision | None = None
    holders: tuple[frozenset[int], ...] = ()


def suffices(choice: Collection[int], electors: frozenset[int]) -> bool:
    """Whether at least half of the electors' contributions are on a list: of many, never only one."""
    return 2 * len(electors.intersection(choice)) >= len(electors)
