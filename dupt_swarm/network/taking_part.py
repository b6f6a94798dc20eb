"""How a node comes to take part: what it needs is made, started and joined together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack

from dupt_swarm.network.averaging.exchange import RoundContext
from dupt_swarm.network.averaging.offences import Accusing, Offences
from dupt_swarm.network.averaging.polls import Judgement
from dupt_swarm.network.averaging.rounds import Rounds, SwarmAverager
from dupt_swarm.network.host import Host, background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.joining.entry import get_first_state, newest_attestation
from dupt_swarm.network.joining.handshake import get_tokenizer
from dupt_swarm.network.members.gossip import ask_regularly
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.network.members.neighbours import Neighbours
from dupt_swarm.network.participant import Participant
from dupt_swarm.network.reach.reachability import open_up, tell_whereabouts
from dupt_swarm.network.states.replaying import Replaying
from dupt_swarm.network.states.round_log import RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.network.states.sync import StateSync
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.commands import Join
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.record import JOINED, RecordUpdate
from dupt_swarm.replica.blob import Blob

logger = logging.getLogger(__name__)


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
