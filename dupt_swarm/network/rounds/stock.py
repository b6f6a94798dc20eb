"""The contributions of a round: those that somebody brings, and those that are here."""

from __future__ import annotations

from collections.abc import Iterable

from dupt_swarm.replica.link import Brought, Choice


class Stock:
    """One member's.

    Attributes:
        known: that somebody brings, by digest.
        held: digests of those that are here.
    """

    def __init__(self) -> None:
        self.known: dict[str, Brought] = {}
        self.held: set[str] = set()

    def learn(self, brought: Iterable[Brought | None]) -> None:
        """Somebody brings these."""
        self.known |= {each.digest: each for each in brought if each is not None}

    def has(self, choice: Choice) -> bool:
        """Whether all that it needs are here."""
        return self.held.issuperset(each.digest for each in choice.brought)

    @property
    def missing(self) -> list[Brought]:
        """Those to fetch."""
        return [each for digest, each in self.known.items() if digest not in self.held]
