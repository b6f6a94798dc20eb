"""State sync: a peer that missed a round, or whose state differs, fetches the state that it should have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from dupt_swarm.errors import NodeError
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.messages import CatchingUp, FetchFailed
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.state import ReplicaState

logger = logging.getLogger(__name__)


class StateSync:
    """Compares each view with our state, and starts the download of a better one.

    Attributes:
        task: the download under way, if there is one.
    """

    def __init__(
        self, store: StateStore, member: Membership, replaying: Replaying, tell: Callable[[object], None]
    ) -> None:
        """``tell`` passes each `CatchingUp` to the parent process."""
        self._store, self._member, self._replaying, self._tell = store, member, replaying, tell
        self.task: asyncio.Task[None] | None = None

    def follow(self, view: View, then: Callable[[], Awaitable[None]]) -> None:
        """Begin to fetch the state that ``view`` shows to be better than ours, if there is one.

        Args:
            view: the newest one.
            then: awaited when the state is there.
        """
        if self.task is not None and not self.task.done():
            return
        if self._store.is_behind(view, self._member.peer_id):
            assert view.best is not None
            self._tell(CatchingUp(fetching=True, newer=None))
            self.task = asyncio.create_task(self._fetch(view.best, view, then))

    async def _fetch(self, best: Peer, view: View, then: Callable[[], Awaitable[None]]) -> None:
        digest, tokens = claim = best.record.state_digest, best.record.swarm_tokens
        try:
            state = await self._get(best.peer_id, digest, tokens)
            self._member.trust(view, claim)
            if state.swarm_tokens < self._store.name.swarm_tokens:
                return  # meanwhile we completed a round of our own
            self._store.newer = state
            await then()
        except NodeError as error:
            self._tell(FetchFailed())
            logger.warning("%s", error)
            self._member.distrust(view, claim)
        finally:
            newer = self._store.newer
            self._tell(CatchingUp(fetching=False, newer=name_of(newer) if newer else None))

    async def _get(self, claimant: str, digest: str, tokens: int) -> ReplicaState:
        """The state ``digest``, computed from ours if that is possible and pays, fetched otherwise.

        Rounds may be shorter than the way to us: then it is a later one, which its claimant has by now.

        Raises:
            NodeError: neither is to be had.
        """
        holders = partial(self._member.holders, digest)
        state = await self._replaying.replay(self._store.newer or self._store.current, digest, holders)
        if state is not None and state.swarm_tokens == tokens:
            return state
        try:
            return await self._store.fetch(digest, holders, tokens)
        except NodeError:
            later = await self._store.fetch_present(claimant)
            if later.swarm_tokens <= tokens:
                raise
            return later
