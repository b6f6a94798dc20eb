"""A node that takes part: it holds the replica state, averages, and serves others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from hivemind.utils import get_dht_time

from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.offences import Accusing, Offences
from dupt_swarm.network.averaging.polls import Judgement
from dupt_swarm.network.averaging.rounds import Rounds, SwarmAverager, accept
from dupt_swarm.network.host import Host, background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.joining.entry import get_first_state, newest_attestation
from dupt_swarm.network.joining.handshake import get_tokenizer
from dupt_swarm.network.members.dialling import Neighbours
from dupt_swarm.network.members.gossip import ask_regularly
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.network.reach.reachability import open_up, own_addresses, tell_whereabouts
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.network.states.replaying import Replaying, RoundLog
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.network.states.sync import StateSync
from dupt_swarm.node.addresses import Address, keep_ports
from dupt_swarm.node.commands import EndRound, Join
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.messages import Adopted, CatchingUp, Joined, RoundResult, StateName
from dupt_swarm.node.reasons import Failure
from dupt_swarm.node.record import JOINED, RecordUpdate
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


async def take_part(connection: Connection, order: Join, host: Host, stack: AsyncExitStack) -> Participant:
    """Get the tokenizer and the state, be there for others, and follow the swarm.

    Args:
        connection: to the swarm.
        order: what the parent wants.
        host: the process.
        stack: gets whatever has to be closed.

    Raises:
        DuptError: no state is to be had, the bandwidth is too little, …
    """
    settings, manifest, membership = connection.settings, connection.manifest, connection.membership
    p2p, handshake = connection.p2p, connection.handshake
    offences = Offences(manifest.swarm_id, membership, settings.offences)
    accusing = Accusing(p2p, manifest.swarm_id, offences)
    await accusing.start()
    tokenizer = await get_tokenizer(connection.exchange, settings, handshake)
    store = StateStore(manifest, connection.exchange, host.tell)
    memory, beginning = await _begin(connection, order, store)
    numel = store.current.anchor.numel()
    if settings.role == "oracle":
        others = len(membership.view.without(membership.peer_id).oracles)
        p2p.bandwidth.check(manifest, numel, others)
    averager = await _open_averager(connection, host, numel, offences)
    log = _open_log(connection, store)
    replaying = Replaying(manifest, connection.exchange, log, store.empty, always=settings.role != "oracle")
    initial = [Address.of_peer(address).peer_id for address in settings.initial_peers]
    neighbours = Neighbours(p2p, connection.dht, settings.initial_peers, connection.book)
    stack.callback(neighbours.save)
    node = Participant(
        connection=connection,
        host=host,
        tokenizer=Blob.build({"kind": "tokenizer"}, [tokenizer]),
        store=store,
        memory=memory,
        judgement=Judgement(host.tell, memory.vectors.number, manifest.rounds.voting_seconds),
        rounds=Rounds(manifest, store, membership, averager, log, lambda: p2p.counts),
        log=log,
        sync=StateSync(store, membership, replaying, host.tell, initial),
        neighbours=neighbours,
        beginning=beginning,
    )
    node.serve()
    assert settings.role != "observer"
    node.announce(RecordUpdate(state=JOINED[settings.role]))
    await open_up(connection.started, membership)
    for work in (*_endless(node), ask_regularly(membership.gossip.partners, accusing.ask)):
        await stack.enter_async_context(background(work))
    return node


async def _begin(connection: Connection, order: Join, store: StateStore) -> tuple[SharedMemory, str]:
    """Get the first state; the memory in which it is from now on, and on whose word it is that one."""
    membership, handshake = connection.membership, connection.handshake
    left = order.predecessor
    memory = SharedMemory(order.memory_fd, left.layout, store.buffer_names) if left else None
    word = await get_first_state(store, membership, handshake, connection.settings.checkpoint, memory)
    attested = newest_attestation(handshake)
    connection.exchange.attestation = attested[1] if attested else ""
    memory = memory or SharedMemory(order.memory_fd, store.current.layout, store.buffer_names)
    await asyncio.to_thread(store.keep_in, memory.vectors)
    memory.name(store.current)
    membership.reach(store.current.voters)
    return memory, word


def _endless(node: Participant) -> tuple[Coroutine[object, object, None], ...]:
    """What a node does in the background for as long as it takes part."""
    connection = node.connection
    membership = connection.membership
    return (
        _keep_reachable(connection, node.host),
        node.neighbours.keep_forever(),
        FailureDetector(node.neighbours.dialler, membership).watch_forever(),
        membership.publish_forever(),
        membership.watch_forever(node.on_view),
    )


async def _open_averager(connection: Connection, host: Host, numel: int, offences: Offences) -> SwarmAverager:
    assert connection.settings.identity_path is not None
    membership = connection.membership
    context = RoundContext(
        manifest=connection.manifest,
        p2p=connection.p2p,
        key=load_identity(connection.settings.identity_path),
        numel=numel,
        blobs=connection.exchange,
        callable=connection.started.reach != "client",
    )
    averager = SwarmAverager(context, membership, host.tell, offences.expose)
    await averager.open()
    return averager


def _open_log(connection: Connection, store: StateStore) -> RoundLog:
    """The log of rounds, from now on for others to read."""
    log = RoundLog(connection.settings.log_rounds, connection.settings.log_bytes)
    connection.exchange.serve_from(log)
    connection.exchange.tell_log(lambda since: log.since(since, store.name.digest))
    return log


async def _keep_reachable(connection: Connection, host: Host) -> None:
    reason = await tell_whereabouts(connection.started, connection.membership)
    logger.error("a new daemon is needed: %s", reason)
    host.give_up()
