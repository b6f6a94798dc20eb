"""Which peers decide what state follows: as every holder of a replica state knows, from the rounds alone.

A state's electorate are the peers past probation whose contributions counted in one of the last few rounds,
but for those who have left. So it breathes with who is there, and nobody's view of who is there enters it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dupt_swarm.fields import PEER_ID

# A peer decides after so many rounds that counted, and until it was in none of the last so many.
PROBATION_ROUNDS, MEMORY_ROUNDS = 4, 3
# A peer that came in the later half of the first one's time is a junior, for so many rounds at most.
JUNIOR_ROUNDS_MAX = 256
ROWS_MAX = 512

Service = tuple[int, int, int]
"""In how many rounds a peer counted, which was the first of them, and the last; 0: it has left since."""


@dataclass(frozen=True)
class Electorate:
    """What the rounds so far say of the peers that took part in them.

    Attributes:
        round: the last of them.
        services: by peer id.
    """

    round: int = 0
    services: Mapping[str, Service] = field(default_factory=dict)

    @cached_property
    def members(self) -> frozenset[str]:
        """Ids of those who decide while nobody has left."""
        return self.deciding()

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self.members

    @property
    def former(self) -> frozenset[str]:
        """Ids of those who are past probation, and of the electorate again after one round that counts."""
        return frozenset(peer for peer, (rounds, *_) in self.services.items() if rounds >= PROBATION_ROUNDS)

    def deciding(self, left: Collection[str] = ()) -> frozenset[str]:
        """Ids of those who decide if these have left: more than half of them make a quorum.

        There are fewer juniors than others among them, those that came first. So keys that are new are never
        a majority beside others, however many they are and however few of the others stay up at night.
        """
        seniors = self._seniors.difference(left)
        juniors = [peer for peer in self._juniors if peer not in left]
        return seniors.union(juniors[: max(0, len(seniors) - 1)])

    def is_quorum(self, those: Collection[str], left: Collection[str] = ()) -> bool:
        """Whether these are more than half of those who decide if ``left`` have left.

        Any two quorums share somebody, or somebody of one has left in the other: as long as nobody who counts
        in one has left in the other. That is what lets ballots differ in who has left; see the tests.
        """
        deciding = self.deciding(left)
        return 2 * len(deciding.intersection(those)) > len(deciding)

    def after(
        self, counted: Collection[str], left: Collection[str] = (), *, weak: bool = False
    ) -> Electorate:
        """The electorate of the state that follows by a round in which contributions of ``counted`` counted.

        Args:
            counted: ids of their makers.
            left: ids of those who have left.
            weak: whether less than a quorum has decided. Then only they are of the next electorate: those
                who were of this one; if there are none, former members; and else, as in the first round, all.
        """
        number = self.round + 1
        services = {**dict.fromkeys(counted, (0, number, 0)), **self.services}
        found = {
            peer: (
                rounds + (peer in counted),
                first,
                0 if peer in left else number if peer in counted else last,
            )
            for peer, (rounds, first, last) in services.items()
        }
        if weak:
            there = frozenset(counted).difference(left)
            chosen = (self._active & there) or (self.former & there) or there
            found = {
                peer: (max(rounds, PROBATION_ROUNDS), first, number) if peer in chosen else (rounds, first, 0)
                for peer, (rounds, first, _) in found.items()
            }
        kept = sorted(found.items(), key=_worth)[-ROWS_MAX:]
        return Electorate(number, dict(sorted(kept)))

    @cached_property
    def _active(self) -> frozenset[str]:
        return frozenset(
            peer for peer in self.former if self.services[peer][2] > max(0, self.round - MEMORY_ROUNDS)
        )

    @cached_property
    def _seniors(self) -> frozenset[str]:
        since = min(max(map(self._time, self._active), default=0) / 2, JUNIOR_ROUNDS_MAX)
        return frozenset(peer for peer in self._active if self._time(peer) >= since)

    @cached_property
    def _juniors(self) -> list[str]:
        """Those that came first before the others."""
        return sorted(self._active - self._seniors, key=lambda peer: (-self._time(peer), peer))

    def _time(self, peer: str) -> int:
        """Rounds since it came."""
        return self.round - self.services[peer][1]

    def to_json(self) -> list[list[str | int]]:
        """As it stands in the header of a state."""
        return [[peer, *service] for peer, service in sorted(self.services.items())]

    @classmethod
    def parse(cls, round: int, tree: object) -> Electorate:
        """Read that of another peer's state of that round, or of one on disk.

        Raises:
            ValueError: it is none.
        """
        if not isinstance(tree, list) or len(tree) > ROWS_MAX:
            raise ValueError("the replica state has no electorate")
        found = cls(round, dict(_parse_row(row, round) for row in tree))
        if found.to_json() != tree:
            raise ValueError("the replica state's electorate is not in order")
        return found


def _worth(row: tuple[str, Service]) -> tuple[bool, int, int, str]:
    """The more, the sooner it is kept: those past probation, then who was there last."""
    peer, (rounds, _, last) = row
    return rounds >= PROBATION_ROUNDS, last, rounds, peer


def _parse_row(row: object, round: int) -> tuple[str, Service]:
    match row:
        case [str() as peer, int() as rounds, int() as first, int() as last] if (
            PEER_ID.fullmatch(peer)
            and not any(isinstance(each, bool) for each in row)
            and 1 <= first <= round
            and 1 <= rounds < 1 << 62
            and (last == 0 or first <= last <= round)
        ):
            return peer, (rounds, first, last)
    raise ValueError("the replica state's electorate is malformed")
