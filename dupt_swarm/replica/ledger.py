"""The ledger: who has given what, from the links of the chain of rounds alone.

So it survives every restart, and is the same for all who have the chain. How many tokens a contribution
stands for is its maker's word, which the others have taken within their limits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.link import Link

SOUGHT_MIN = 6  # characters of an id


@dataclass(frozen=True)
class Entry:
    """What a peer has given.

    Attributes:
        peer_id: the peer.
        tokens: behind its contributions that counted, as it stated them.
        rounds: in which one counted.
        dropped: rounds in which one was brought, and counted for nothing.
        first_round: the first one in which one counted, from 1; 0: none ever did.
        last_round: the last one.
    """

    peer_id: str
    tokens: int = 0
    rounds: int = 0
    dropped: int = 0
    first_round: int = 0
    last_round: int = 0


@dataclass(frozen=True)
class Ledger:
    """What all have given.

    Attributes:
        begins: the round after which the chain begins; 0: it is whole.
        round: the last round that it counts.
        entries: all who have brought something, those with the most tokens first.
        weak: how many of its rounds less than a quorum has signed.
    """

    begins: int
    round: int
    entries: tuple[Entry, ...] = ()
    weak: int = 0

    @cached_property
    def tokens(self) -> int:
        """The tokens of all together."""
        return sum(entry.tokens for entry in self.entries)

    @cached_property
    def contributors(self) -> int:
        """How many peers have contributed something that counted."""
        return sum(entry.rounds > 0 for entry in self.entries)

    def place(self, peer_id: str) -> int | None:
        """The rank of a peer, from 1; None: nothing of it has counted."""
        places = (place for place, entry in enumerate(self.entries, 1) if entry.peer_id == peer_id)
        place = next(places, None)
        return None if place is None or place > self.contributors else place

    def find(self, sought: str) -> Entry | None:
        """The entry of a peer by its id, or by the end of it."""
        if len(sought) < SOUGHT_MIN:
            return None
        return next((entry for entry in self.entries if entry.peer_id.endswith(sought)), None)

    def of(self, peer_id: str) -> Entry:
        """What that peer has given, if anything."""
        return next((entry for entry in self.entries if entry.peer_id == peer_id), Entry(peer_id))


class Bookkeeping:
    """Counts a chain as it grows; where it has changed, it is counted anew.

    Thousands of rounds take a while to count, which may be done in a thread, and none to look at.
    """

    def __init__(self) -> None:
        self._first = self._head = ""
        self._round = self._weak = 0
        self._entries: dict[str, Entry] = {}

    def look(self, chain: Chain) -> Callable[[], Ledger]:
        """What counts ``chain`` as it is now when it is called, wherever the chain has got to by then."""
        first, begins, head = chain.first, chain.begins, chain.head
        more = chain.between(self._head, head) if first == self._first else None
        links = [*chain.links] if more is None else more

        def count() -> Ledger:
            if more is None:
                self._entries, self._round, self._weak = {}, begins, 0
            for link in links:
                self._add(link)
            self._first, self._head = first, head
            # A peer of which nothing counted comes last, whatever it said.
            ordered = sorted(
                self._entries.values(), key=lambda entry: (not entry.rounds, -entry.tokens, entry.peer_id)
            )
            return Ledger(begins, self._round, tuple(ordered), self._weak)

        return count

    def read(self, chain: Chain) -> Ledger:
        """The ledger of ``chain``."""
        return self.look(chain)()

    def _add(self, link: Link) -> None:
        self._round += 1
        self._weak += link.choice.weak
        dropped = frozenset(link.dropped)
        for maker, tokens in {each.maker: each.tokens for each in link.choice.brought}.items():
            before = self._entries.get(maker, Entry(maker))
            if maker in dropped:
                self._entries[maker] = replace(before, dropped=before.dropped + 1)
                continue
            self._entries[maker] = replace(
                before,
                tokens=before.tokens + tokens,
                rounds=before.rounds + 1,
                first_round=before.first_round or self._round,
                last_round=self._round,
            )
