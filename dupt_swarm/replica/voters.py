"""Who votes on rounds, as every holder of a replica state knows: those who took part in enough of them.

The table is a part of the state, and follows from the rounds alone. So all replicas have the same one, and
whoever holds a state knows whose word on the next one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dupt_swarm.fields import PEER_ID
from dupt_swarm.replica.draw import drawn

# A newcomer votes after so many rounds; who was in none of the last so many votes no longer.
PROBATION_ROUNDS, MEMORY_ROUNDS = 4, 32
STANDINGS_MAX = 512

Standing = tuple[int, int]
"""In how many rounds a peer was, `PROBATION_ROUNDS` at most, and which was the last of them."""


@dataclass(frozen=True)
class Voters:
    """What the rounds so far say of the peers that took part in them.

    Attributes:
        standings: by peer id.
    """

    standings: Mapping[str, Standing] = field(default_factory=dict)

    def __iter__(self) -> Iterator[str]:
        """Ids of those who vote."""
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(peer for peer, (rounds, _) in self.standings.items() if rounds >= PROBATION_ROUNDS)

    def after(self, round: int, members: Collection[str], state: str = "") -> Voters:
        """The table after ``round`` (from 1), which ``members`` ended together, from ``state`` (its digest).

        Those of the first round all vote. Later, one newcomer at most becomes a voter in a round, so that
        many who come at once do not outvote the others; and none in a round without more than half of the
        voters, so that the parts of a swarm that was split know the same ones when they meet again.
        """
        if not self._known:
            return Voters(dict.fromkeys(sorted(members), (PROBATION_ROUNDS, round)))
        complete = 2 * len(self._known.intersection(members)) > len(self._known)
        found = {
            peer: (rounds, round if peer in members else last)
            for peer, (rounds, last) in self.standings.items()
            if peer in members or last > round - MEMORY_ROUNDS
        }
        if complete:
            newcomers = [peer for peer in members if peer not in self._known]
            for peer in newcomers:
                found[peer] = (min(self._rounds(peer) + 1, PROBATION_ROUNDS - 1), round)
            ripe = [peer for peer in newcomers if self._rounds(peer) == PROBATION_ROUNDS - 1]
            if ripe:
                found[drawn(ripe, state)[0]] = (PROBATION_ROUNDS, round)
        return Voters(dict(sorted(sorted(found.items(), key=_worth)[-STANDINGS_MAX:])))

    def _rounds(self, peer: str) -> int:
        return self.standings.get(peer, (0, 0))[0]

    def to_json(self) -> list[list[str | int]]:
        """As it stands in the header of a state."""
        return [[peer, *standing] for peer, standing in sorted(self.standings.items())]

    @classmethod
    def parse(cls, tree: object) -> Voters:
        """Read the table of another peer's state, or of one on disk.

        Raises:
            ValueError: it is none.
        """
        if not isinstance(tree, list) or len(tree) > STANDINGS_MAX:
            raise ValueError("the replica state has no table of voters")
        found = Voters(dict(map(_parse_row, tree)))
        if found.to_json() != tree:
            raise ValueError("the replica state's table of voters is not in order")
        return found


def _worth(row: tuple[str, Standing]) -> tuple[int, int, str]:
    """The more, the sooner it stays: voters before newcomers, and then who was there last."""
    peer, (rounds, last) = row
    return rounds, last, peer


def _parse_row(row: object) -> tuple[str, Standing]:
    match row:
        case [str() as peer, int() as rounds, int() as last] if (
            PEER_ID.fullmatch(peer)
            and not isinstance(rounds, bool)
            and not isinstance(last, bool)
            and 1 <= rounds <= PROBATION_ROUNDS
            and 0 <= last < 1 << 62
        ):
            return peer, (rounds, last)
    raise ValueError("the replica state's table of voters is malformed")
