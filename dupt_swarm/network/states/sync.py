"""State sync: a peer that missed a round, or is at another branch, fetches the state that it should have.

That is where more than half of those are whose word counts, as their records say. A claim by itself moves
nobody. Voters take a state only with the votes of a quorum, and say in their records where they are. So a
state that more than half of the voters have said to be at was voted for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from hivemind.utils import get_dht_time

from dupt_swarm.errors import NodeError
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.messages import CatchingUp, FetchFailed, StateName
from dupt_swarm.node.view import Peer
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.voters import MEMORY_ROUNDS

logger = logging.getLogger(__name__)

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


# So many rounds in a row without a quorum, and the voters are at states of which none has more than half.
STALEMATE_ROUNDS = 2
# Distance from our parameters ÷ their norm, or that of the others. What is independent of ours is farther;
# two halves of a young swarm were half as far after a dozen rounds.
DISTANCE_MAX = 0.9
ASKED_MAX = 3  # of those who claim a state, for the one that they have by now
FAILURES_MAX = 3  # downloads in a stalemate; then nobody waits for those who claim what cannot be had


class StateSync:
    """Listens to those whose word counts, and starts the download of the state that most of them have.

    Attributes:
        task: the download under way, if there is one.
    """

    def __init__(
        self,
        store: StateStore,
        member: Membership,
        replaying: Replaying,
        tell: Callable[[object], None],
        initial: Collection[str] = (),
    ) -> None:
        """Begin.

        Args:
            store: of our state.
            member: knows the others.
            replaying: computes missed rounds.
            tell: passes each `CatchingUp` to the parent process.
            initial: ids of the peers that the operator named; believed while no voter is known.
        """
        self._store, self._member, self._replaying, self._tell = store, member, replaying, tell
        self._initial = frozenset(initial)
        self._claims = Claims()
        self._far: set[str] = set()  # who claimed a state that no rounds can lead to, or that nobody has
        self._failures = 0
        # Until we have ended a round with others they may have gone on without us, however far.
        self._away, self._heard_at = True, get_dht_time()
        self._claims.reach(self._mine)
        self.task: asyncio.Task[None] | None = None

    def reached(self, *, together: bool = False) -> None:
        """Our state is another one now; ``together``: we have ended a round with others."""
        self._claims.reach(self._mine)
        self._far.clear()
        self._failures = 0
        self._away = self._away and not together

    def hear(self) -> None:
        """Read what is known of the others now."""
        now, before = get_dht_time(), self._heard_at
        if now - before > self._member.record_seconds or not self._member.is_at_work:  # asleep, or paused
            self._away = True
        self._heard_at = now
        heard = self._believed.peers | self._initial
        self._claims.hear(peer for peer in self._member.living if peer.peer_id in heard)

    @property
    def ahead(self) -> StateName | None:
        """The state that we should have; None: we have it."""
        mine, believed = self._mine, self._believed
        found = self._claims.ahead(mine, believed)
        if found is None and mine.round < MEMORY_ROUNDS:
            # Oracles that began without one another have voters of their own.
            found = self._claims.other_branch(mine, Believed(self._initial_there))
        if found is None and (believed.anybody or self._is_stalemate):
            found = self._claims.first_of_equals(mine, believed, self._far, away=self._away)
        return found

    def follow(self, then: Callable[[], Awaitable[None]]) -> None:
        """Begin to fetch the state that we should have, if it is another; then await ``then``."""
        if self.task is not None and not self.task.done():
            return
        ahead = self.ahead
        if ahead is not None:
            self._tell(CatchingUp(fetching=True, newer=None))
            self.task = asyncio.create_task(self._fetch(ahead, then))

    @property
    def _mine(self) -> StateName:
        return name_of(self._store.newer or self._store.current)

    @property
    def _is_stalemate(self) -> bool:
        return self._member.attempts >= STALEMATE_ROUNDS

    @property
    def _initial_there(self) -> frozenset[str]:
        living = {peer.peer_id for peer in self._member.living} - {self._member.peer_id}
        return self._initial.intersection(living)

    @property
    def _believed(self) -> Believed:
        """The voters who are there; while there are none but us, the initial peers.

        A first peer has none, and believes those at work: in a swarm that has not ended a round yet it goes
        with whoever has, since somebody must begin. While all voters that are there have paused, it goes to
        where they are; when all have left, it computes the rounds of whoever goes on.
        """
        member, me = self._member, {self._member.peer_id}
        voters = member.voters_there
        if voters - me:
            return Believed(voters - me, bool(voters & me) and member.is_at_work, backwards=True)
        if self._initial_there or voters:
            return Believed(self._initial_there)
        if not len(member.voters):
            others = member.at_work - me or (set() if me & member.paused else member.paused)
            return Believed(frozenset(others), member.is_at_work, half=True, anybody=True)
        paused = member.paused.intersection(member.voters)
        if paused:
            return Believed(paused - me, bool(paused & me))
        return Believed(member.at_work - me, half=True, computed=True)

    async def _fetch(self, name: StateName, then: Callable[[], Awaitable[None]]) -> None:
        before, believed = self._mine, self._believed
        agreed = self._claims.ahead(before, believed) is not None  # else it is one of equals
        by_most = self._away and self._claims.are_at(name, believed)
        try:
            state = await self._get(name)
            if self._mine != before:
                return  # meanwhile we completed a round of our own
            if self._is_stalemate and not (agreed or by_most) and not is_near(state, self._store.current):
                self._failures = FAILURES_MAX
                raise NodeError(
                    f"state {name.digest[:8]} of other voters is too far from ours to be one of the swarm's"
                )
            self._store.newer = state
            self._claims.reach(self._mine)
            await then()
        except NodeError as error:
            self._failures += self._is_stalemate and not agreed
            if self._failures >= FAILURES_MAX:
                self._far |= set(self._claims.claimants(name, believed))
            self._tell(FetchFailed())
            logger.warning("%s", error)
        finally:
            newer = self._store.newer
            self._tell(CatchingUp(fetching=False, newer=name_of(newer) if newer else None))

    async def _get(self, name: StateName) -> ReplicaState:
        """The state ``name``, computed from ours if that is possible and pays, fetched otherwise.

        Rounds may be shorter than the way to us: then it is a later one, if as many claim that by now.

        Raises:
            NodeError: neither is to be had.
        """
        holders = partial(self._member.holders, name.digest)
        mine = self._store.newer or self._store.current
        state = await self._replaying.replay(mine, name.digest, holders)
        if state is not None:
            return state
        if self._believed.computed:
            raise NodeError("the rounds of those who go on cannot be computed from our state")
        try:
            return await self._store.fetch(name.digest, holders, name.swarm_tokens)
        except NodeError:
            later = await self._get_later(name)
            if later is None:
                raise
            return later

    async def _get_later(self, name: StateName) -> ReplicaState | None:
        """A state that as many claim by now as claimed ``name``; None: it cannot be had either."""
        claimants = self._claims.claimants(name, self._believed)
        for claimant in random.sample(claimants, min(ASKED_MAX, len(claimants))):
            with contextlib.suppress(Exception):  # it may fail in any way that libp2p knows
                later = await self._store.fetch_present(claimant)
                await self._member.refresh()
                self.hear()
                if self._claims.is_claimed(name_of(later), self._believed):
                    return later
        return None


def is_near(state: ReplicaState, mine: ReplicaState) -> bool:
    """Whether some rounds may lie between the two."""
    vectors = (state.anchor - mine.anchor, state.anchor, mine.anchor)
    distance, *lengths = (float(torch.linalg.vector_norm(each)) for each in vectors)
    return distance <= DISTANCE_MAX * min(lengths)
