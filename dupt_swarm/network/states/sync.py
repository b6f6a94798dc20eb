"""State sync: a peer that missed a round, or is at another branch, fetches the state that it should have."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import torch
from hivemind.utils import get_dht_time

from dupt_swarm.errors import NodeError
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.claims import Believed, Claims
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.messages import CatchingUp, FetchFailed, StateName
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.voters import MEMORY_ROUNDS

# So many rounds in a row without a quorum, and the voters are at states of which none has more than half.
STALEMATE_ROUNDS = 2
# Distance from our parameters ÷ their norm, or that of the others. What is independent of ours is farther;
# two halves of a young swarm were half as far after a dozen rounds.
DISTANCE_MAX = 0.9
ASKED_MAX = 3  # of those who claim a state, for the one that they have by now
FAILURES_MAX = 3  # downloads in a stalemate; then nobody waits for those who claim what cannot be had

logger = logging.getLogger(__name__)


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
