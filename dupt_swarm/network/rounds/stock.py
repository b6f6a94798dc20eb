"""The contributions of a round: those that somebody brings, and those that are here."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dupt_swarm.replica.link import BROUGHT_MAX, Brought, Choice, Promise

# Of strangers: they could say that they bring, or hold, whatever they like.
MAKERS_MAX = 512
# Others besides the electorate who take part in a ballot.
COMERS_MAX = 192
# So many may one maker bring, one after the other, as what it brought before was rejected: each is kept.
OF_ONE_MAX = 8


class Stock:
    """What one member knows of the contributions of a round.

    Attributes:
        members: ids of the electorate, which always have a place.
        held: digests of those that are here.
        held_by: of those that are with another peer, by its id, as far as it has said so.
        lasting: whether what is held in one ballot is held in the next one too. It is not where contributions
            come as the average of those of one roll.
    """

    def __init__(self, members: frozenset[str], *, lasting: bool) -> None:
        self.members, self.lasting = members, lasting
        self._by_maker: dict[str, Brought] = {}
        self._ever: dict[str, set[str]] = {}  # digests by maker
        self.held: set[str] = set()
        self.held_by: dict[str, frozenset[str]] = {}

    def has_place_for(self, peer: str, places: Collection[str]) -> bool:
        """Whether to keep something of a peer, beside what is kept of those in ``places``."""
        return peer in self.members or peer in places or len(places) < MAKERS_MAX

    def admits(self, promise: Promise, comers: Collection[str]) -> bool:
        """Whether its maker may take part beside ``comers``: of strangers some, who bring something.

        They decide nothing, and what they say of choices would fill the answers to all.
        """
        if promise.maker in self.members:
            return True
        plain = not promise.refused and promise.accepted is None
        return plain and (promise.maker in comers or len(comers) < COMERS_MAX)

    def learn(self, brought: Iterable[Brought | None]) -> None:
        """Somebody brings these: the last one of each maker counts, of the first few."""
        for each in brought:
            if each is None or not self.has_place_for(each.maker, self._by_maker):
                continue
            ever = self._ever.setdefault(each.maker, set())
            if each.digest in ever or len(ever) < OF_ONE_MAX:
                ever.add(each.digest)
                self._by_maker[each.maker] = each

    def turn(self) -> None:
        """Another ballot begins: forget what was held, unless it lasts."""
        if not self.lasting:
            self.held.clear()
            self.held_by.clear()

    def note_held(self, peer: str, digests: frozenset[str]) -> None:
        """Another says that it holds these."""
        if self.has_place_for(peer, self.held_by):
            self.held_by[peer] = digests

    def holders(self, brought: Brought) -> list[str]:
        """Ids of the others who have it, as far as they have said so: its maker first."""
        found = {peer for peer, digests in self.held_by.items() if brought.digest in digests}
        return [brought.maker, *sorted(found - {brought.maker})]

    def has(self, choice: Choice) -> bool:
        """Whether all that it needs are here."""
        return self.held.issuperset(each.digest for each in choice.brought)

    @property
    def told(self) -> frozenset[str]:
        """Digests of those of which others are told that they are here: the electorate's at any rate."""
        own = {each.digest for maker, each in self._by_maker.items() if maker in self.members}
        return frozenset(sorted(self.held, key=lambda digest: (digest not in own, digest))[:BROUGHT_MAX])

    @property
    def missing(self) -> list[Brought]:
        """Those that somebody brings and that are not here."""
        return [each for each in self._by_maker.values() if each.digest not in self.held]
