"""The ledger: who has given what, from the links of the chain of rounds alone.

So it needs nobody's word, survives every restart, and is the same for all who have the chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    """

    begins: int
    round: int
    entries: tuple[Entry, ...] = ()

    @property
    def tokens(self) -> int:
        """Of all together."""
        return sum(entry.tokens for entry in self.entries)

    @property
    def contributors(self) -> int:
        """How many there are of whom something counted."""
        return sum(entry.rounds > 0 for entry in self.entries)

    def place(self, peer_id: str) -> int | None:
        """That of a peer, from 1; None: it has brought nothing."""
        places = (place for place, entry in enumerate(self.entries, 1) if entry.peer_id == peer_id)
        return next(places, None)

    def find(self, sought: str) -> Entry | None:
        """The entry of a peer by its id, or by the end of it."""
        if len(sought) < SOUGHT_MIN:
            return None
        return next((entry for entry in self.entries if entry.peer_id.endswith(sought)), None)

    def of(self, peer_id: str) -> Entry:
        """What that peer has given, if anything."""
        return next((entry for entry in self.entries if entry.peer_id == peer_id), Entry(peer_id))


class Bookkeeping:
    """Counts a chain as it grows; where it has changed, it is counted anew."""

    def __init__(self) -> None:
        self._first = self._head = ""
        self._round = 0
        self._entries: dict[str, Entry] = {}

    def read(self, chain: Chain) -> Ledger:
        """What the links of ``chain`` say."""
        more = chain.between(self._head, chain.head) if chain.first == self._first else None
        if more is None:
            self._entries, self._round = {}, chain.electorate_at(0).round
            more = chain.links
        for link in more:
            self._add(link)
        self._first, self._head = chain.first, chain.head
        ordered = sorted(self._entries.values(), key=lambda entry: (-entry.tokens, entry.peer_id))
        return Ledger(chain.electorate_at(0).round, self._round, tuple(ordered))

    def _add(self, link: Link) -> None:
        self._round += 1
        dropped = frozenset(link.dropped)
        for each in link.choice.brought:
            before = self._entries.get(each.maker, Entry(each.maker))
            if each.maker in dropped:
                self._entries[each.maker] = replace(before, dropped=before.dropped + 1)
                continue
            self._entries[each.maker] = replace(
                before,
                tokens=before.tokens + each.tokens,
                rounds=before.rounds + 1,
                first_round=before.first_round or self._round,
                last_round=self._round,
            )
