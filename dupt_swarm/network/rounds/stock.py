"""The contributions of a round: those that somebody brings, and those that are here."""

from __future__ import annotations

from collections.abc import Iterable

from dupt_swarm.replica.link import Brought, Choice


class Stock:
    """One member's.

    Attributes:
        known: that somebody brings, by digest.
        held: digests of those that are here.
        held_by: of those that are with another peer, by its id, as far as it has said so.
        lasting: whether what is held in one ballot is held in the next one too. It is not where contributions
            come as the average of those of one roll.
    """

    def __init__(self, *, lasting: bool = True) -> None:
        self.lasting = lasting
        self.known: dict[str, Brought] = {}
        self.held: set[str] = set()
        self.held_by: dict[str, frozenset[str]] = {}

    def learn(self, brought: Iterable[Brought | None]) -> None:
        """Somebody brings these."""
        self.known |= {each.digest: each for each in brought if each is not None}

    def turn(self) -> None:
        """Another ballot begins."""
        if not self.lasting:
            self.held.clear()
            self.held_by.clear()

    def note_held(self, peer: str, digests: frozenset[str]) -> None:
        """Another says that it holds these."""
        self.held_by[peer] = digests | self.held_by.get(peer, frozenset())

    def holders(self, brought: Brought) -> list[str]:
        """Ids of the others who have it, as far as they have said so: its maker first."""
        found = {peer for peer, digests in self.held_by.items() if brought.digest in digests}
        return [brought.maker, *sorted(found - {brought.maker})]

    def has(self, choice: Choice) -> bool:
        """Whether all that it needs are here."""
        return self.held.issuperset(each.digest for each in choice.brought)

    @property
    def missing(self) -> list[Brought]:
        """Those to fetch."""
        return [each for digest, each in self.known.items() if digest not in self.held]
