"""Which state to follow: where more than half of those are whose word counts, as their records say.

A claim by itself moves nobody. Voters take a state only with the votes of a quorum, and say in their records
where they are. So a state that more than half of the voters have said to be at was voted for.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dupt_swarm.node.messages import StateName
from dupt_swarm.node.view import Peer

HEARD_MAX = 256  # states; a voter claims one at a time
AHEAD_MAX = 32  # rounds; see `first_of_equals`
STATES_KEPT = 1024  # of those that this peer was at, round and digest


@dataclass(frozen=True)
class Believed:
    """Whose word counts.

    Attributes:
        peers: their ids.
        mine: whether our own counts too, for the state that we are at.
        backwards: whether they are followed to an earlier round too, although nothing shows that it is on
            another branch than ours: they may simply be behind.
        half: whether half of them are enough, and not more than half.
        anybody: whether, if no state has enough of them, the one with the most is followed.
        computed: whether their state is taken only if its rounds can be computed from ours.
    """

    peers: frozenset[str] = frozenset()
    mine: bool = False
    backwards: bool = False
    half: bool = False
    anybody: bool = False
    computed: bool = False

    @property
    def needed(self) -> int:
        """How many of them must be at a state, one at least."""
        count = len(self.peers) + self.mine
        return max(1, (count + 1) // 2 if self.half else count // 2 + 1)


class Claims:
    """What peers have said since this one reached the state that it is at, and where it was before.

    They move on while a state is fetched: what they have said before counts as long as we stay.
    """

    def __init__(self) -> None:
        self._heard: OrderedDict[StateName, set[str]] = OrderedDict()
        self._now: dict[str, StateName] = {}
        self._history: OrderedDict[StateName, None] = OrderedDict()

    def reach(self, mine: StateName) -> None:
        """This peer is at another state now."""
        self._heard.clear()
        self._history[mine] = None
        self._history.move_to_end(mine)
        if len(self._history) > STATES_KEPT:
            self._history.popitem(last=False)

    def hear(self, peers: Iterable[Peer]) -> None:
        """Read the records of those whose word counts."""
        self._now = {peer.peer_id: _named(peer) for peer in peers}
        for peer_id, name in self._now.items():
            self._heard.setdefault(name, set()).add(peer_id)
            self._heard.move_to_end(name)
        while len(self._heard) > HEARD_MAX:
            self._heard.popitem(last=False)

    def ahead(self, mine: StateName, believed: Believed) -> StateName | None:
        """The latest state that enough of those claim whose word counts; None: that is ``mine``."""
        found = [
            name
            for name in self._heard
            if self.is_claimed(name, believed) and self._may_follow(name, mine, believed)
        ]
        return max(found, key=lambda name: (name.round, name.digest), default=None)

    def is_claimed(self, name: StateName, believed: Believed) -> bool:
        """Whether enough of those claim it whose word counts."""
        return len(self._heard.get(name, set()) & believed.peers) >= believed.needed

    def first_of_equals(
        self, mine: StateName, believed: Believed, left_out: Collection[str] = (), *, away: bool = False
    ) -> StateName | None:
        """Where no state has enough of them: the one that all choose alike; None: that is ours.

        The most at this moment count, then the round, then the digest. A round far beyond ours is no claim
        that anybody could check; it takes more than half of the others.

        Args:
            mine: where we are.
            believed: whose word counts.
            left_out: those of them that claimed what cannot be.
            away: whether the others may have come that far while we were away.
        """
        there = Counter(self._now[peer] for peer in self._now.keys() & believed.peers - set(left_out))
        there[mine] += believed.mine
        possible = [
            name
            for name in there
            if name.round <= mine.round + AHEAD_MAX or (away and self.are_at(name, believed))
        ]
        first = max(possible, key=lambda name: (there[name], name.round, name.digest))
        return None if first == mine else first

    def are_at(self, name: StateName, believed: Believed) -> bool:
        """Whether more than half of the others whose word counts are there at this moment."""
        there = [peer for peer in believed.peers if self._now.get(peer) == name]
        return 2 * len(there) > len(believed.peers)

    def other_branch(self, mine: StateName, believed: Believed) -> StateName | None:
        """The latest state on another branch than ours that more than half of these claim; None: none."""
        found = self.ahead(mine, believed)
        return found if found is not None and self._is_fork(found) else None

    def claimants(self, name: StateName, believed: Believed) -> list[str]:
        """Those whose word counts who have claimed it."""
        return sorted(self._heard.get(name, set()) & believed.peers)

    def _may_follow(self, name: StateName, mine: StateName, believed: Believed) -> bool:
        if name.digest == mine.digest or self._is_past(name):
            return False
        return believed.backwards or name.round > mine.round or self._is_fork(name)

    def _is_past(self, name: StateName) -> bool:
        return name in self._history

    def _is_fork(self, name: StateName) -> bool:
        """Whether we were at another state of that round, and never at this one."""
        return not self._is_past(name) and any(each.round == name.round for each in self._history)


def _named(peer: Peer) -> StateName:
    record = peer.record
    return StateName(record.round, record.swarm_tokens, record.state_digest)
