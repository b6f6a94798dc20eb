"""Whose votes on a round count."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Electorate:
    """Whose votes on a round count: more than half of these decide.

    Attributes:
        voters: ids of those who vote on the state, and are there; nobody: whoever is in the group.
    """

    voters: frozenset[str] = frozenset()

    def of(self, members: Collection[str]) -> frozenset[str]:
        """Those that count in a group of ``members``."""
        return self.voters or frozenset(members)

    def is_quorum(self, those: Iterable[str], members: Collection[str]) -> bool:
        """Whether ``those`` of the ``members`` of a group are enough to decide."""
        counted = self.of(members)
        return 2 * len(counted.intersection(those)) > len(counted)
