"""How a node comes to take part: it gets the state, is there for others, and follows the swarm."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

from dupt_swarm.disk.folders import CHAIN_FILE, OFFENCES_FILE, ORIGINS_FOLDER, PLEDGES_FILE
from dupt_swarm.network.host import Host, background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.joining.entry import get_first_state, newest_attestation
from dupt_swarm.network.joining.handshake import get_tokenizer
from dupt_swarm.network.members.dialling import Neighbours
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.liveness import FailureDetector
from dupt_swarm.network.participant import Participant
from dupt_swarm.network.reach.dialback import DialBack
from dupt_swarm.network.reach.reachability import is_outdated, tell_whereabouts, whereabouts
from dupt_swarm.network.reach.relays import known_relays
from dupt_swarm.network.rounds.deciding import Context, Deciding
from dupt_swarm.network.rounds.exchange import RoundExchange
from dupt_swarm.network.rounds.follow import Following
from dupt_swarm.network.rounds.history import History
from dupt_swarm.network.rounds.judgement import Judgement
from dupt_swarm.network.rounds.offences import Accusing, Offences
from dupt_swarm.network.rounds.origins import Origins
from dupt_swarm.network.rounds.past import Past
from dupt_swarm.network.rounds.pledges import Pledges
from dupt_swarm.network.rounds.reduce import Reduce
from dupt_swarm.network.rounds.share import Share
from dupt_swarm.network.rounds.tally import Tally
from dupt_swarm.network.states.offered import OfferedFiles, donors_in
from dupt_swarm.network.states.replaying import Replaying, RoundLog
from dupt_swarm.network.states.store import StateStore
from dupt_swarm.node.commands import Join
from dupt_swarm.node.memory import SharedMemory
from dupt_swarm.node.record import JOINED, RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.signed_words import BeginningRecord, Words

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
    p2p, exchange, folder = connection.p2p, connection.exchange, settings.own_folder
    assert settings.role != "observer" and folder is not None

    def others() -> View:
        return membership.view.without(membership.peer_id)

    offences = Offences(manifest.swarm_id, membership, folder / OFFENCES_FILE)
    accusing = Accusing(p2p, manifest.swarm_id, offences)
    await p2p.serve(accusing)
    tokenizer = await get_tokenizer(exchange, settings, connection.handshake)
    store = StateStore(manifest, exchange, host.tell)
    memory, beginning = await _begin(connection, order, store)
    numel = store.current.anchor.numel()
    if settings.role == "oracle":
        p2p.bandwidth.check(manifest, numel, len(others().oracles))
    log = RoundLog(settings.log_rounds, settings.log_bytes)
    exchange.serve_from(log)
    words = Words(manifest.swarm_id)
    history = await asyncio.to_thread(History, store.current, words, folder / CHAIN_FILE)
    exchange.tell_links(lambda known: history.chain.since(known), lambda: BeginningRecord.of(history.chain))
    deciding = await _open_deciding(connection, numel, store, offences, history)
    replaying = Replaying(manifest, exchange, log, store.empty, always=settings.role != "oracle")
    neighbours = Neighbours(p2p, connection.dht, settings.initial_peers, connection.book)
    stack.callback(connection.book.save)
    node = Participant(
        connection=connection,
        host=host,
        tokenizer=Blob.build({"kind": "tokenizer"}, [tokenizer]),
        store=store,
        memory=memory,
        deciding=deciding,
        judgement=Judgement(host.tell, memory.vectors.number, manifest.rounds.voting_seconds),
        tally=Tally(lambda: p2p.counts),
        log=log,
        following=Following(history, store, membership, replaying, deciding, host.tell),
        origins=Origins(folder / ORIGINS_FOLDER),
        offered=OfferedFiles(settings.offer, exchange, lambda: donors_in(others()), host.tell),
        neighbours=neighbours,
        beginning=beginning,
    )
    p2p.bandwidth.download.is_reserved = lambda: node.is_ending_a_round
    stack.push_async_callback(deciding.leave)
    node.serve()
    node.announce(RecordUpdate(state=JOINED[settings.role]))
    membership.update(await whereabouts(connection.started))
    await p2p.serve(DialBack(p2p, lambda: known_relays(membership.view)))
    for work in (
        _keep_reachable(connection, host),
        neighbours.keep_forever(),
        node.offered.fetch_forever(),
        FailureDetector(neighbours.dialler, membership).watch_forever(),
        membership.publish_forever(),
        membership.watch_forever(node.on_view),
        accusing.ask_forever(membership.gossip.partners),
        accusing.spread_forever(),
        Past(history, membership, exchange, manifest).learn(),
    ):
        await stack.enter_async_context(background(work))
    return node


async def _begin(connection: Connection, order: Join, store: StateStore) -> tuple[SharedMemory, str]:
    """Get the first state; the memory in which it is from now on, and on whose word it is that one."""
    membership, handshake = connection.membership, connection.handshake
    left = order.predecessor
    memory = SharedMemory(order.memory_fd, left.layout) if left else None
    word = await get_first_state(store, membership, handshake, connection.settings.checkpoint, memory)
    attested = newest_attestation(handshake)
    connection.exchange.attestation = attested[1] if attested else ""
    memory = memory or SharedMemory(order.memory_fd, store.current.layout)
    await asyncio.to_thread(store.keep_in, memory.vectors)
    memory.name(store.current)
    membership.electorate = store.current.electorate
    return memory, word


async def _open_deciding(
    connection: Connection, numel: int, store: StateStore, offences: Offences, history: History
) -> Deciding:
    settings, manifest, p2p = connection.settings, connection.manifest, connection.p2p
    assert settings.identity_path is not None and settings.own_folder is not None
    callable = connection.started.reach != "client"
    exchange: RoundExchange = Share(manifest, numel, connection.exchange)
    if manifest.rounds.exchange == "reduce":
        exchange = Reduce(manifest, numel, p2p, callable=callable)
    context = Context(
        manifest,
        p2p,
        load_identity(settings.identity_path),
        connection.membership,
        exchange,
        Pledges(settings.own_folder / PLEDGES_FILE),
        callable,
    )
    deciding = Deciding(context, store.following, history.from_state, offences.expose_by)
    await deciding.open()
    return deciding


async def _keep_reachable(connection: Connection, host: Host) -> None:
    started, settings, book = connection.started, connection.settings, connection.book
    reason = await tell_whereabouts(
        started, connection.membership, lambda: is_outdated(started, settings, book.addresses)
    )
    logger.error("a new daemon is needed: %s", reason)
    host.give_up()
