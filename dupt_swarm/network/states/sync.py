"""State sync: a peer that missed a round, or is at another branch, fetches the state that it should have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from dupt_swarm.errors import NodeError
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.claims import Believed, Claims
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.messages import CatchingUp, FetchFailed, StateName
from dupt_swarm.replica.state import ReplicaState

# So many rounds in a row without a quorum, and the voters are at states of which none has more than half.
STALEMATE_ROUNDS = 2

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
        self._took_part, self._failures, self._heard_at = False, 0, 0.0
        self._claims.reach(self._mine)
        self.task: asyncio.Task[None] | None = None

    def reached(self, *, by_round: bool) -> None:
        """Our state is another one now: by a round that we have ended, or as the others were ahead."""
        self._claims.reach(self._mine)
        self._took_part, self._failures = by_round, 0

    def failed(self) -> None:
        """No quorum was found for a round of ours."""
        self._failures += 1

    def hear(self) -> None:
        """Read what is known of the others now."""
        now, limit = self._member.view.time, self._member.record_seconds
        if now - self._heard_at > limit:
            self._took_part = False  # this process was suspended: the others have gone on without it
        self._heard_at = now
        believed = self._believed
        self._claims.hear(peer for peer in self._member.living if peer.peer_id in believed.peers)

    @property
    def ahead(self) -> StateName | None:
        """The state that we should have; None: we have it."""
        believed = self._believed
        found = self._claims.ahead(self._mine, believed)
        if found is None and (believed.anybody or self._failures >= STALEMATE_ROUNDS):
            return self._claims.first_of_equals(self._mine, believed)
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
    def _believed(self) -> Believed:
        """The voters who are there; while there are none but us, the initial peers; or else all at work.

        In a swarm that has not ended a round yet a first peer goes with whoever has: somebody must begin.
        """
        member, me = self._member, {self._member.peer_id}
        voters = member.electorate.voters
        if voters - me:
            mine = bool(voters & me) and member.is_at_work and self._took_part
            return Believed(voters - me, mine, backwards=True)
        initial = self._initial.intersection(peer.peer_id for peer in member.living) - me
        if initial or voters:
            return Believed(initial)
        return Believed(member.at_work - me, member.is_at_work, half=True, anybody=not len(member.voters))

    async def _fetch(self, name: StateName, then: Callable[[], Awaitable[None]]) -> None:
        before = self._mine
        try:
            state = await self._get(name)
            if self._mine != before:
                return  # meanwhile we completed a round of our own
            self._store.newer = state
            self._claims.reach(self._mine)
            await then()
        except NodeError as error:
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
        try:
            return await self._store.fetch(name.digest, holders, name.swarm_tokens)
        except NodeError:
            claimants = self._claims.claimants(name, self._believed)
            if not claimants:
                raise
            later = await self._store.fetch_present(claimants[0])
            await self._member.refresh()
            self.hear()
            if not self._claims.is_claimed(name_of(later), self._believed):
                raise
            return later
