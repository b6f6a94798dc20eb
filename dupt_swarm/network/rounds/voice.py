"""What a member says of one state: signed, and kept where it outlives a crash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from dupt_swarm.replica.link import Accepted, Promise, Proposal, Word

W = TypeVar("W", bound=Word)


@dataclass(frozen=True)
class Pledged:
    """What a member has signed of one state: it must outlive a crash, or it might contradict itself.

    Attributes:
        ballot: the latest for which it has promised.
        accepted: what it accepted last, with the proposal.
        refused: ids of choices that it never accepts.
        leave: its last word, if it has left.
        once: ids of all choices that it has ever accepted; it refuses none of them for good.
    """

    ballot: int = -1
    accepted: Accepted | None = None
    basis: Proposal | None = None
    refused: frozenset[str] = frozenset()
    leave: Promise | None = None
    once: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Voice:
    """By which a member says what it must not contradict later.

    Attributes:
        me: its peer id.
        sign: signs a word.
        keep: stores what must outlive a crash, before anything of it is told.
        callable: whether others can call it.
    """

    me: str
    sign: Callable[[Word], bytes] = lambda _: b""
    keep: Callable[[Pledged], None] = lambda _: None
    callable: bool = True

    def signed(self, word: W) -> W:
        """``word`` with the signature."""
        return replace(word, signed=self.sign(word))
