"""Following: a peer that sees others elsewhere takes their links, verifies them, and gets the state.

Nobody follows a claim. Whatever a record says, links are fetched first, and each is verified by the
electorate of the state before it, from a state of ours on. So catching up, coming back and meeting another
branch are one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import dropwhile

from dupt_swarm.errors import NodeError
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.messages import CatchingUp, FetchFailed
from dupt_swarm.node.view import Peer
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Link
from dupt_swarm.replica.signed_words import LinkRecord, Words
from dupt_swarm.replica.state import ReplicaState

# So long a stranger may tell its links, and whoever decides, or did.
STRANGER_SECONDS, TELLING_SECONDS = 60.0, 600.0
# A peer that told nothing that leads on is asked again after so long, at first and at the latest.
FIRST_SECONDS, LONGEST_SECONDS = 2.0, 120.0

logger = logging.getLogger(__name__)


class Following:
    """Looks where others are, and gets there.

    Attributes:
        history: of our rounds; its chain leads to the newest state that the store has.
        task: what is being fetched, if anything is.
        patience: for so many seconds we wait for a strong link before we go on by a weak one.
    """

    def __init__(
        self,
        history: History,
        store: StateStore,
        member: Membership,
        replaying: Replaying,
        deciding: Deciding,
        tell: Callable[[object], None],
    ) -> None:
        """Begin.

        Args:
            history: of our rounds.
            store: of our state.
            member: knows the others.
            replaying: computes missed rounds.
            deciding: what we take part in. No weak link leads us on while we are in the midst of it, and the
                round in which we are goes on by a link that we hear of.
            tell: passes each `CatchingUp` to the parent process.
        """
        self.history, self._store, self._member = history, store, member
        self._replaying, self._deciding, self._tell = replaying, deciding, tell
        self._words = Words(replaying.manifest.swarm_id)
        self.patience = 2 * replaying.manifest.rounds.searching_seconds
        self._pauses = Pauses(FIRST_SECONDS, LONGEST_SECONDS)
        self._head, self._since = history.chain.head, time.monotonic()  # of our chain, and since when
        self.task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is being fetched."""
        return self.task is not None and not self.task.done()

    def look(self, then: Callable[[], Awaitable[None]]) -> None:
        """If somebody is at a state that we do not know, begin to find out about it; then await ``then``."""
        if self.is_busy:
            return
        peer = self._elsewhere()
        if peer is not None:
            self.task = asyncio.create_task(self._find_out(peer.peer_id, then))

    @property
    def _newest(self) -> ReplicaState:
        return self._store.newer or self._store.current

    def _elsewhere(self) -> Peer | None:
        """A peer at a state that is none of ours: one whose word counts, if there is one."""
        chain = self.history.chain
        ours = (self._deciding.next_state, "")
        found = [
            peer
            for peer in self._member.living
            if peer.peer_id != self._member.peer_id
            and peer.record.state_digest not in ours
            and peer.record.state_digest not in chain
            and peer.peer_id not in self._pauses
        ]
        electorate = chain.electorate

        def key(peer: Peer) -> tuple[bool, bool, int, float]:
            mine, former = peer.peer_id in electorate, peer.peer_id in electorate.former
            return not mine, not former, -peer.record.round, random.random()

        return min(found, key=key, default=None)

    async def _find_out(self, peer_id: str, then: Callable[[], Awaitable[None]]) -> None:
        """Go where its links lead, if they do lead on: with the round in which we are, or by ourselves."""
        moved = handed = False
        before = self._newest
        try:
            is_known = peer_id in self.history.chain.electorate.former
            async with asyncio.timeout(TELLING_SECONDS if is_known else STRANGER_SECONDS):
                told, trial = await self._branch_of(peer_id)
            if told and self._newest is not before:  # a round has ended here meanwhile
                trial = await self._tried(told)
            if links := self._cautiously(told):
                for link in links:
                    self._deciding.compare(link)
                after = links[-1].after
                if after in trial and after not in self.history.chain:
                    handed = len(links) == 1 and self._deciding.follow(links[0])
                    moved = not handed and await self._get(links, trial.electorate_of(after), peer_id)
                elif after in self.history.chain and self._newest is not before:
                    # A round of ours has led there meanwhile: it was in vain by no fault of this peer.
                    self._pauses.note(peer_id, useful=True)
        except (CallError, ValueError, TimeoutError) as error:
            logger.debug("%s tells no links that lead on: %s", peer_id, error)
        finally:
            self._pauses.note(peer_id, useful=moved or handed)
        if moved and self._store.newer is not None:  # else we have left it behind meanwhile
            await then()

    async def _branch_of(self, peer_id: str) -> tuple[list[Link], Chain]:
        """The links that it tells, and the chain to which they lead: verified, from a state of ours on.

        Of a branch that loses there is one link, and the chain is as ours.

        Raises:
            CallError: it does not tell.
            ValueError: a word in them cannot be read, or one is no link from the state before.
        """
        told: list[Link] = []
        ours = trial = self.history.chain
        async with aclosing(self._replaying.exchange.links_of(peer_id, ours.known())) as pages:
            async for page in pages:
                if not told and page.links:
                    trial = ours.copied_from(page.links[0].state)
                if not await asyncio.to_thread(self._try, page.links, told, trial):
                    break
        return told, trial

    def _try(self, records: Sequence[LinkRecord], told: list[Link], trial: Chain) -> bool:
        """Add a page to the links ``told`` before, and follow it in ``trial``; whether its branch wins."""
        for record in records:
            link = record.link(self._words)
            if told and link.state != told[-1].after:
                raise ValueError("links that do not follow from one another")
            told.append(link)
            trial.follow([link])
            if link.after not in trial:
                return False
        return True

    async def _tried(self, links: list[Link]) -> Chain:
        """Ours, however many rounds end here meanwhile, if it follows these: ours still, if theirs lose.

        Raises:
            ValueError: they are not to be followed.
        """
        while True:
            before, trial = self._newest, self.history.chain.copied_from(links[0].state)
            await asyncio.to_thread(trial.follow, links)
            if self._newest is before:
                return trial

    def _cautiously(self, links: list[Link]) -> list[Link]:
        """These, up to a weak one that would lead on from our chain before it is time for that.

        One liar can make a weak link, and others may be about to make a strong one from the same state.
        """
        chain, now = self.history.chain, time.monotonic()
        if chain.head != self._head:
            self._head, self._since = chain.head, now
        place = next((place for place, link in enumerate(links) if link.state == chain.head), len(links))
        weak = next((at for at in range(place, len(links)) if links[at].choice.weak), len(links))
        if weak == len(links) or not chain.electorate.members:
            return links
        alone = all(peer.peer_id in links[weak].makers for peer in self._living)
        waited = alone or now - self._since >= self.patience
        may_go_on = waited and not self._deciding.is_in_ballots and self._may_be_left(links[weak])
        return links if may_go_on else links[:weak]

    @property
    def _living(self) -> list[Peer]:
        """Those who decide, or did, and are there, wherever that is."""
        former = self.history.chain.electorate.former
        return [peer for peer in self._member.living if peer.peer_id in former]

    def _may_be_left(self, link: Link) -> bool:
        """Whether those who decide may be gone from our state, and some have gone on by a weak ``link``.

        Nobody goes with strangers while one lives that knows the state.
        """
        electorate = self.history.chain.electorate
        here = [peer.peer_id for peer in self._living if peer.record.state_digest == link.state]
        if electorate.is_quorum(here):
            return False
        return bool(electorate.former & link.makers) or not self._living

    async def _get(self, links: list[Link], electorate: Electorate, peer_id: str) -> bool:
        """The state to which they lead, which has this ``electorate``, and our chain with it."""
        before = self._newest
        self._tell(CatchingUp(fetching=True, newer=None))
        try:
            state = await self._state_after(links, peer_id)
            if self._newest is not before and not await self._still_leads_on(links):
                return True  # to the state of the round that has ended here meanwhile
            if (state.round, state.electorate) != (electorate.round, electorate):
                raise ValueError(f"state {state.digest[:8]} does not say what its links say")
            self.history.follow(links)
            self._store.newer = state
            return True
        except (NodeError, ValueError) as error:
            self._tell(FetchFailed())
            logger.warning("%s", error)
            return False
        finally:
            newer = self._store.newer
            self._tell(CatchingUp(fetching=False, newer=name_of(newer) if newer else None))

    async def _still_leads_on(self, links: list[Link]) -> bool:
        """Whether they lead to a state that we want still, though a round has ended here.

        A large state takes several rounds to fetch: who would give it up for each one would never get there.
        """
        after = links[-1].after
        trial = await self._tried(links)
        return after in trial and after not in self.history.chain and self._cautiously(links) == links

    async def _state_after(self, links: list[Link], peer_id: str) -> ReplicaState:
        """Computed from ours, if that is possible and pays, or fetched.

        Raises:
            NodeError: it is not to be had.
        """
        before, after = self._newest, links[-1].after

        async def holders() -> list[str]:
            return list(dict.fromkeys([*await self._member.holders(after), peer_id]))

        async def keepers() -> list[str]:
            living = (each.peer_id for each in self._member.living if each.peer_id != self._member.peer_id)
            return list(dict.fromkeys([*await holders(), *living]))

        missed = list(dropwhile(lambda link: link.state != before.digest, links))
        if missed and (state := await self._replaying.replay(before, missed, keepers)) is not None:
            return state
        return await self._store.fetch(after, holders)
