"""A node that takes part: it holds the replica state, averages, and serves others."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from hivemind.utils import get_dht_time

from dupt_swarm.network.averaging.polls import Judgement
from dupt_swarm.network.averaging.rounds import Rounds, accept
from dupt_swarm.network.host import Host
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.members.neighbours import Neighbours
from dupt_swarm.network.reach.reachability import own_addresses
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.round_log import RoundLog
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.network.states.sync import StateSync
from dupt_swarm.node.addresses import keep_ports
from dupt_swarm.node.commands import EndRound
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import Adopted, CatchingUp, Joined, RoundResult, StateName
from dupt_swarm.node.reasons import Failure
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.version import VERSION

VIEW_SECONDS = 1.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Participant:
    """The node of an oracle, a bootstrap or an evaluator, from the moment that it has a state.

    Attributes:
        connection: what observers have too.
        host: the process.
        tokenizer: served to those who join.
        store: of the replica state.
        memory: shared with the trainer; the states are there.
        rounds: ends them.
        log: of the last rounds.
        sync: fetches newer states.
        neighbours: keeps us connected.
        beginning: on whose word our first state was that one.
    """

    connection: Connection
    host: Host
    tokenizer: Blob
    store: StateStore
    memory: SharedMemory
    rounds: Rounds
    judgement: Judgement
    log: RoundLog
    sync: StateSync
    neighbours: Neighbours
    beginning: str
    _told: list[ReplicaState] = field(default_factory=list)  # to the trainer, which may be at any of them

    async def joined(self) -> Joined:
        """What the parent process gets to know."""
        settings, addresses = self.connection.settings, await own_addresses(self.connection.p2p)
        return Joined(
            peer_id=str(self.connection.p2p.peer_id),
            addresses=tuple(addresses),
            host_maddrs=keep_ports(settings.host_maddrs, addresses),
            manifest=self.connection.manifest.canonical_bytes(),
            tokenizer=bytes(self.tokenizer.sections[0]),
            layout=self.store.current.layout,
            buffer_names=self.store.buffer_names,
            state=self._tell_state(),
            beginning=self.beginning,
        )

    async def end_round(self, order: EndRound) -> RoundResult:
        """Average the contribution in the shared memory, and take the outer step; see `EndRound`."""
        self.rounds.begin()
        reason = await self._reason_to_wait(order.state)
        if reason:
            return RoundResult(None, reason, 0, (), 0.0)
        self._release(order.state)
        self.store.forget_previous()
        self.serve()
        self.announce(RecordUpdate(state="averaging", round_tokens=order.tokens))
        after, outcome, seconds = await self.rounds.end(
            self.memory.contribution[: order.size],
            order.tokens,
            order.companions,
            self.judgement.accepts if order.judged else accept,
        )
        if after is not None and not outcome.included:
            return self._leave_behind(after, seconds)
        if after is not None:
            self._replace(after, together=bool(outcome.mates))
            logger.info(
                "round %d averaged with %d others in %.1f s, %d tokens: state %.8s",
                *(after.round, len(outcome.mates), seconds, outcome.tokens, self.store.name.digest),
            )
        else:
            logger.info("round %d failed after %.1f s: %s", order.state.round + 1, seconds, outcome.reason)
        left = 0 if after is not None else order.tokens
        self.announce(RecordUpdate(state="training", round_tokens=left) | self.rounds.told)
        name = self._tell_state() if after is not None else None
        return RoundResult(name, outcome.reason, outcome.tokens, outcome.mates, seconds)

    def _leave_behind(self, state: ReplicaState, seconds: float) -> RoundResult:
        """The round ended without our contribution: the trainer adopts its state, and keeps its progress."""
        self.store.newer = state
        name = name_of(state)
        logger.info("round %d ended without our contribution: state %.8s", name.round, name.digest)
        self.announce(RecordUpdate(state="training") | self.rounds.told)
        self.host.tell(CatchingUp(fetching=False, newer=name))
        return RoundResult(None, Failure.LEFT_OUT, 0, (), seconds)

    async def adopt(self, state: StateName) -> Adopted:
        """Make the newer state that is there, if it still is newer, the current one; see `Adopt`."""
        self._release(state)
        self._move_on()
        return Adopted(self._tell_state(), self.log.makers(state.digest, self.store.name.digest))

    def voters(self) -> tuple[StateName, tuple[str, ...]]:
        """The current state, and who votes on the next one; see `ReadVoters`."""
        return self.store.name, tuple(sorted(self.store.current.voters))

    async def save(self, path: Path) -> StateName:
        """Write the current replica state to ``path``."""
        state = self.store.current
        await asyncio.to_thread(save_state, state, path)
        return name_of(state)

    def serve(self) -> None:
        """Let others fetch our state from now on, and all that they need to join."""
        manifest = self.connection.manifest
        hello = Hello(
            version=VERSION,
            swarm_id=manifest.swarm_id,
            manifest=manifest.canonical_bytes().decode(),
            tokenizer_blob=self.tokenizer.digest,
            state_digest=self.store.name.digest,
        )
        self.connection.exchange.publish(hello, [self.tokenizer, *self.store.blobs])

    def announce(self, update: RecordUpdate) -> None:
        """Publish where our state stands, with ``update``: the others should learn of it at once."""
        name, settings = self.store.name, self.connection.settings
        assert settings.role != "observer"
        standing = RecordUpdate(
            role=settings.role,
            name=settings.name[:40],
            device=settings.device[:60],
            version=VERSION,
            round=name.round,
            swarm_tokens=name.swarm_tokens,
            state_digest=name.digest,
        )
        self.connection.membership.update(standing | update, now=True)

    def on_view(self, view: View) -> None:
        """Draw the conclusions from a new view, and tell the trainer."""
        self.neighbours.note(view)
        self.sync.hear()
        if not self.rounds.under_way:
            self.sync.follow(self._on_newer_state)
        elif self.sync.ahead is not None:
            self.rounds.overtaken()
        self.host.tell(view)
        self.host.tell(self.connection.p2p.counts)

    async def _on_newer_state(self) -> None:
        # Who trains or measures adopts a newer state when it is between two steps; others do so at once.
        if self.connection.settings.role == "bootstrap":
            self._move_on()

    def _move_on(self) -> None:
        if self.store.newer is not None:
            self._replace(self.store.newer)
            name = self.store.name
            logger.info("adopted the state of round %d: state %.8s", name.round, name.digest)
            self.announce(RecordUpdate())

    def _replace(self, state: ReplicaState, *, together: bool = False) -> None:
        """Make ``state`` the current one; the trainer is at the one before until it is told.

        ``together``: others have ended a round with us.
        """
        self.store.replace(state)
        self.memory.name(state)
        self.connection.membership.reach(state.voters)
        self.sync.reached(together=together)
        self.serve()

    def _tell_state(self) -> StateName:
        """The current state, for the trainer: its memory stays as it is until the trainer has left it."""
        state = self.store.current
        if not self._told or self._told[-1] is not state:
            self._told.append(state)
        return self._named(state)

    def _named(self, state: ReplicaState) -> StateName:
        return replace(name_of(state), place=self.memory.vectors.number(state.anchor))

    def _release(self, at: StateName) -> None:
        """The trainer is ``at`` a state that it was told: it has left those that it was told before."""
        told = [(each, each.place) for each in map(self._named, self._told)]
        if (at, at.place) not in told:  # the process before this one told it, and left it somewhere else
            return
        del self._told[: told.index((at, at.place))]
        self.memory.vectors.reclaim()
        asyncio.get_running_loop().run_in_executor(None, self.memory.vectors.trim)

    async def _reason_to_wait(self, state: StateName) -> Failure | None:
        """Why no round from ``state`` may be ended now: the trainer should adopt a newer one first."""
        if state != self.store.name:
            # This process was started again, and the one before had come further than it could tell.
            self.host.tell(CatchingUp(fetching=False, newer=self.store.name))
            return Failure.STALE
        membership = self.connection.membership
        if get_dht_time() - membership.view.time > VIEW_SECONDS:
            # On a busy machine the others may have ended this round without us and we not know it yet.
            self.on_view(await membership.refresh())
        return None if self.sync.ahead is None else Failure.BEHIND
