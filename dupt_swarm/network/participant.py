"""A node that takes part: it holds the replica state, averages, and serves others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hivemind.utils import get_dht_time

from dupt_swarm.errors import FileError
from dupt_swarm.network.host import Host
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.members.dialling import Neighbours
from dupt_swarm.network.reach.reachability import own_addresses
from dupt_swarm.network.rounds.deciding import Deciding
from dupt_swarm.network.rounds.follow import Following
from dupt_swarm.network.rounds.judgement import Judgement
from dupt_swarm.network.rounds.origins import Origins
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.network.rounds.session import Ended, Session
from dupt_swarm.network.rounds.tally import Tally
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.offered import OfferedFiles
from dupt_swarm.network.states.replaying import RoundLog
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.addresses import keep_ports
from dupt_swarm.node.commands import EndRound
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import (
    Adopted,
    CatchingUp,
    GroupFormed,
    Joined,
    LedgerPlace,
    RoundResult,
    StateName,
)
from dupt_swarm.node.reasons import Failure
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.chain import counted_in
from dupt_swarm.replica.ledger import Bookkeeping, Ledger
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state
from dupt_swarm.version import VERSION

VIEW_SECONDS = 1.5

logger = logging.getLogger(__name__)


@dataclass
class Participant:
    """The node of an oracle, a bootstrap or an evaluator, from the moment that it has a state.

    Attributes:
        connection: what observers have too.
        host: the process.
        tokenizer: served to those who join.
        store: of the replica state.
        memory: shared with the trainer; the states are there.
        deciding: leaves one state after another with the others.
        judgement: asks the trainer what to accept.
        tally: counts rounds.
        log: what the last rounds are computed from again.
        following: gets to where the others are.
        origins: anchors from which less than a quorum went on.
        offered: text that the swarm offers.
        neighbours: keeps us connected.
        beginning: on whose word our first state was that one.
    """

    connection: Connection
    host: Host
    tokenizer: Blob
    store: StateStore
    memory: SharedMemory
    deciding: Deciding
    judgement: Judgement
    tally: Tally
    log: RoundLog
    following: Following
    origins: Origins
    offered: OfferedFiles
    neighbours: Neighbours
    beginning: str
    _bookkeeping: Bookkeeping = field(default_factory=Bookkeeping)
    _told: list[ReplicaState] = field(default_factory=list)  # to the trainer, which may be at any of them
    _counting: asyncio.Task[None] | None = None
    _ending: asyncio.Task[Ended | None] | None = None
    _leaving: asyncio.Task[None] | None = None
    _given_up: bool = False  # the round that is being ended
    _cannot_pledge: bool = False  # what would be signed cannot be kept: the disk is full, say

    def __post_init__(self) -> None:
        """Judge what is decided, and hear of it."""
        self.deciding.accepts = self.judgement.accepts
        self.deciding.on_left, self.deciding.on_roll = self.on_left, self.on_roll

    async def joined(self) -> Joined:
        """What the parent process gets to know."""
        settings, addresses = self.connection.settings, await own_addresses(self.connection.p2p)
        return Joined(
            peer_id=self._me,
            addresses=tuple(addresses),
            host_maddrs=keep_ports(settings.host_maddrs, addresses),
            manifest=self.connection.manifest.canonical_bytes(),
            tokenizer=bytes(self.tokenizer.sections[0]),
            layout=self.store.current.layout,
            state=self._tell_state(),
            beginning=self.beginning,
        )

    async def end_round(self, order: EndRound) -> RoundResult:
        """Bring the contribution in the shared memory, and wait until the state is left; see `EndRound`."""
        began = time.monotonic()
        self._given_up = False
        reason = await self._reason_to_wait(order.state)
        if reason or self._given_up:
            return RoundResult(None, reason or Failure.CANCELLED, 0, (), 0.0)
        if not order.size:
            self.tally.failed(Failure.NOT_FINITE)
            return RoundResult(None, Failure.NOT_FINITE, 0, (), 0.0)
        self._release(order.state)
        self.store.forget_previous()
        self.serve()
        self.announce(RecordUpdate(state="averaging", round_tokens=order.tokens))
        self.judgement.asked = order.judged
        ended = await self._end(order)
        self.judgement.asked = False
        return self._ended(ended, order, time.monotonic() - began)

    async def _end(self, order: EndRound) -> Ended | Failure:
        """Wait until the state is left; how it was, or why that is not known."""
        manifest, before = self.connection.manifest, self.store.current
        weight = max(1, int(min(order.tokens, manifest.weight_limit(before.round))))
        ending = asyncio.create_task(self.deciding.end(self.memory.contribution[: order.size], weight))
        self._ending = ending
        try:
            async with asyncio.timeout(manifest.rounds.ending_seconds):
                ended = await ending
            if ended is not None:
                return ended
            session = self.deciding.present
            overflows = session is not None and session.overflows
            return Failure.OUTER_OVERFLOW if overflows else Failure.REJECTED
        except TimeoutError:
            return Failure.TIMEOUT
        except asyncio.CancelledError:
            if not ending.cancelled():
                raise
            return Failure.CANCELLED if self.store.newer is None else Failure.TIMEOUT
        except Exception:
            # libp2p's daemon, hivemind, a full disk: whatever failed, training goes on.
            logger.exception("the round failed")
            return Failure.NETWORK
        finally:
            self._ending = None

    def cancel_round(self) -> None:
        """Wait no longer for the round that is being ended, if there is one."""
        self._given_up = True
        if self._ending is not None:
            self._ending.cancel()

    def _ended(self, ended: Ended | Failure, order: EndRound, seconds: float) -> RoundResult:
        """Make the state that follows the current one, if it is here and our contribution is in it."""
        if isinstance(ended, Failure):
            return self._failed(ended, order, order.tokens, (), seconds)
        link, newer = ended.link, self.store.newer
        mates = tuple(peer for peer in link.counted if peer != self._me)
        if ended.computed is None or newer is None or newer.digest != link.after:
            tokens = sum(each.tokens for each in link.choice.brought)
            return self._failed(Failure.PEER_LOST, order, tokens, mates, seconds)
        tokens = ended.computed.averaged.tokens
        if self._me not in link.counted:
            logger.info("round %d ended without our contribution", newer.round)
            self._announce_failure(Failure.LEFT_OUT)
            self._tell_newer()
            return RoundResult(None, Failure.LEFT_OUT, 0, (), seconds)
        self._replace(newer)
        self.tally.succeeded(1 + len(mates), seconds)
        name = self.store.name
        logger.info(
            "round %d averaged with %d others in %.1f s, %d tokens: state %.8s",
            *(name.round, len(mates), seconds, tokens, name.digest),
        )
        self.announce(RecordUpdate(state="training", round_tokens=0) | self.tally.told)
        own = counted_in([link])[self._me]
        return RoundResult(self._tell_state(), None, tokens, mates, seconds, own)

    def _failed(
        self, reason: Failure, order: EndRound, tokens: int, mates: tuple[str, ...], seconds: float
    ) -> RoundResult:
        logger.info("round %d failed after %.1f s: %s", order.state.round + 1, seconds, reason)
        self._announce_failure(reason, order.tokens)
        return RoundResult(None, reason, tokens, mates, seconds)

    def _announce_failure(self, reason: Failure, left: int = 0) -> None:
        self.tally.failed(reason)
        self.announce(RecordUpdate(state="training", round_tokens=left) | self.tally.told)

    def on_roll(self, roll: Roll) -> None:
        """The peers with which the round is ended are known."""
        mates = tuple(each.maker for each in roll.brought if each.maker != self._me)
        self.host.tell(GroupFormed(sum(each.tokens for each in roll.brought), mates))

    def on_left(self, session: Session, ended: Ended) -> None:
        """A state was left in which we took part, with our contribution or without it."""
        link, computed = ended.link, ended.computed
        attendance = self.connection.membership.attendance
        attendance.ended(session.companions, frozenset(link.choice.makers) - {self._me})
        if computed is None or self.following.history.chain.head != link.state:
            return  # `Following` gets there
        averaged = computed.averaged
        self.tally.reject(averaged.rejected)
        rounds = self.connection.manifest.rounds
        average = next(iter(averaged.blobs)) if rounds.exchange == "reduce" else ""
        self.following.history.follow([replace(link, average=average)])
        self.log.add(link.after, averaged.blobs, session.before)
        self.store.newer = computed.after
        # What steps of an outer optimizer have done is no gradient, and cannot be brought as one.
        if link.choice.weak and rounds.strategy == "diloco":
            self.origins.keep(session.before, computed.after)
        if not self.is_ending_a_round:
            self._tell_newer()

    def _tell_newer(self) -> None:
        """Tell the trainer which newer state it may adopt, if there is one."""
        newer = self.store.newer
        self.host.tell(CatchingUp(fetching=False, newer=name_of(newer) if newer else None))

    @property
    def is_ending_a_round(self) -> bool:
        """Whether it is at that."""
        return self._ending is not None

    @property
    def _me(self) -> str:
        return self.connection.membership.peer_id

    async def adopt(self, state: StateName) -> Adopted:
        """Make the newer state that is there, if it still is newer, the current one; see `Adopt`."""
        self._release(state)
        self._move_on()
        history = self.following.history
        left = history.left_up_to(state.digest)
        parted = left[0].state if left else state.digest
        rounds = history.chain.between(parted, self.store.name.digest)
        counted = None if rounds is None else counted_in(rounds)
        return Adopted(self._tell_state(), counted, self.origins.lost(left, rounds or [], self._me))

    def voters(self) -> tuple[StateName, tuple[str, ...]]:
        """The current state, and who votes on the next one; see `ReadVoters`."""
        return self.store.name, tuple(sorted(self.store.current.electorate.members))

    async def _tell_ledger_place(self) -> None:
        """Tell the trainer what we have given ever; counted in a thread, as many rounds take seconds."""
        count = self._bookkeeping.look(self.following.history.chain)
        self.host.tell(await asyncio.to_thread(self._ledger_place, count))

    def _ledger_place(self, count: Callable[[], Ledger]) -> LedgerPlace:
        ledger = count()
        own, place = ledger.of(self._me), ledger.place(self._me)
        return LedgerPlace(own.tokens, place, ledger.contributors, whole=not ledger.begins)

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

    def publish(self, update: RecordUpdate, *, now: bool) -> None:
        """Change what our record says; whether we are at work is a part of it."""
        self.connection.membership.update(update, now=now)
        self._take_part()

    def on_view(self, view: View) -> None:
        """Draw the conclusions from a new view, and tell the trainer."""
        self.neighbours.note(view)
        self.following.look(self._on_newer_state)
        self.host.tell(view)
        self.host.tell(self.connection.p2p.counts)
        self._take_part()

    def _take_part(self) -> None:
        """Take part in leaving the present state while we are at work; else say that we leave."""
        if self.store.newer is not None:
            return
        if self.connection.membership.is_at_work:
            self._reach()
        elif self.deciding.present is not None and _is_done(self._leaving):
            self._leaving = asyncio.create_task(self.deciding.leave())

    def _reach(self) -> None:
        """Take part; not on a full disk, as after a crash we could contradict what we had signed."""
        try:
            self.deciding.reach(self.store.current)
            self._cannot_pledge = False
        except FileError as error:
            if not self._cannot_pledge:
                logger.error("taking part in no round: %s", error)
            self._cannot_pledge = True

    async def _on_newer_state(self) -> None:
        self.deciding.rest()
        # A peer that trains or measures adopts a newer state between two steps; others do so at once.
        if self.connection.settings.role == "bootstrap":
            self._move_on()

    def _move_on(self) -> None:
        if self.store.newer is not None:
            self._replace(self.store.newer)
            name = self.store.name
            logger.info("adopted the state of round %d: state %.8s", name.round, name.digest)
            self._tell_newer()
            self.announce(RecordUpdate())

    def _replace(self, state: ReplicaState) -> None:
        """Make ``state`` the current one; the trainer is at the one before until it is told."""
        self.deciding.rest()
        self.store.replace(state)
        self.memory.name(state)
        self.connection.membership.electorate = state.electorate
        self.serve()
        self._take_part()
        if _is_done(self._counting):
            self._counting = asyncio.create_task(self._tell_ledger_place())

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
        asyncio.get_running_loop().run_in_executor(
            None, self.memory.vectors.trim, len(self.store.current.tensors)
        )

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
        if self.store.newer is not None:
            self._tell_newer()
            return Failure.BEHIND
        if self.deciding.present is None:
            self._take_part()  # after a round that failed it is begun again
        if self.deciding.present is None:
            return Failure.NETWORK if self._cannot_pledge else Failure.BEHIND
        return None


def _is_done(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
