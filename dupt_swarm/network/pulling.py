"""Fetching a state of the swarm without taking part in it: nothing is published, nobody is served."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from hivemind.p2p import P2P

from dupt_swarm.errors import CheckpointError, FileError, NodeError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.host import Host, background
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.joining.entry import find_state
from dupt_swarm.network.joining.handshake import get_tokenizer
from dupt_swarm.network.p2p.daemon import dial
from dupt_swarm.network.p2p.rpc import CallError
from dupt_swarm.network.rounds.past import by_trust, chain_of
from dupt_swarm.network.states.download import reason_of
from dupt_swarm.network.states.store import StateStore, name_of
from dupt_swarm.node.addresses import Address
from dupt_swarm.node.commands import Pull
from dupt_swarm.node.messages import Pulled
from dupt_swarm.node.view import View
from dupt_swarm.replica.chain import Chain
from dupt_swarm.replica.chain_file import ChainFile
from dupt_swarm.replica.signed_words import Words
from dupt_swarm.replica.state import ReplicaState
from dupt_swarm.replica.storage import save_state

# Of the peers of a large swarm: as many can give chunks at once, and more need not be asked what they hold.
DIALLED_MAX = 16
ASKED_MAX = 64
TELLERS_MAX = 8  # of a chain

logger = logging.getLogger(__name__)


async def pull(connection: Connection, host: Host, order: Pull) -> Pulled:
    """Fetch the state that ``order`` names, checked by its digest, and its chain, and write both to disk.

    Raises:
        NodeError: nobody could give it.
        CheckpointError: it cannot be written.
    """
    tokenizer = await get_tokenizer(connection.exchange, connection.settings, connection.handshake)
    store = StateStore(connection.manifest, connection.exchange, host.tell)
    membership = connection.membership
    async with background(meet(connection.p2p, await membership.refresh())):
        if order.round is None:
            state, _ = await find_state(store, membership, connection.handshake)
        else:
            state = await _state_after(order.round, store, connection)
        chain = await _chain_to(state, connection)
    await asyncio.to_thread(save_state, state, order.path)
    if chain is not None:
        await asyncio.to_thread(_save_chain, chain, connection.manifest, order.chain)
    return Pulled(tokenizer, name_of(state), membership.view)


async def meet(p2p: P2P, view: View) -> None:
    """Dial peers that publish an address: who is behind a relay is not found by its id alone."""
    known = {str(peer.peer_id) for peer in await p2p.list_peers()}
    far = [peer for peer in view.peers if peer.peer_id not in known and peer.record.addresses]
    chosen = random.sample(far, min(DIALLED_MAX, len(far)))
    ways = [str(Address(way, peer.peer_id)) for peer in chosen for way in peer.record.addresses]
    await asyncio.gather(*(dial(p2p, way) for way in ways))


async def _state_after(round: int, store: StateStore, connection: Connection) -> ReplicaState:
    """A state after so many rounds, of several that of most holders; what they say is checked.

    Raises:
        NodeError: nobody holds one; says which rounds can be had.
    """
    holders = await states_held(connection)
    found = [(digest, peers) for (number, digest), peers in holders.items() if number == round]
    problem = "nobody holds it"
    for digest, peers in sorted(found, key=lambda entry: -len(entry[1])):
        try:
            state = await store.fetch(digest, partial(connection.membership.holders, digest, peers))
        except NodeError as error:
            problem = str(error)
            continue
        if state.round == round:
            return state
        problem = f"{', '.join(peers)} gave another"
    rounds = ", ".join(map(str, sorted({number for number, _ in holders}))) or "none"
    raise NodeError(
        f"the state of round {round} is not to be had ({problem}); peers keep the newest states only, "
        f"now of rounds: {rounds}",
        setting="round",
    )


async def _chain_to(state: ReplicaState, connection: Connection) -> Chain | None:
    """The links that lead to ``state``: from round 0 on if anybody tells them, else as many as are told."""
    view = await connection.membership.refresh()
    known = [peer.peer_id for peer in by_trust(view.peers, state.electorate)]
    holders = frozenset(view.holders(state.digest))
    asked = dict.fromkeys([*known, *connection.handshake.peer_ids])
    tellers = sorted(asked, key=lambda each: each not in holders)[:TELLERS_MAX]
    exchange, manifest = connection.exchange, connection.manifest
    tell = partial(chain_of, exchange, manifest=manifest, state=state.digest, electorate=state.electorate)
    return await earliest_chain(tellers, tell)


async def earliest_chain(
    tellers: Iterable[str], tell: Callable[[str], Awaitable[Chain]], early: int = 0
) -> Chain | None:
    """The first chain told that begins at round ``early``, or else the one that begins earliest.

    ``tell`` gets that of one of ``tellers``, who are asked one after the other. None: there is none.
    """
    best: Chain | None = None
    for peer_id in tellers:
        try:
            chain = await tell(peer_id)
        except (CallError, ValueError, TimeoutError) as error:
            logger.info("%s tells no links that lead to the state: %s", peer_id, reason_of(error))
            continue
        if best is None or chain.begins < best.begins:
            best = chain
        if best.begins <= early:
            break
    return best


def _save_chain(chain: Chain, manifest: Manifest, path: Path) -> None:
    try:
        ChainFile(path, Words(manifest.swarm_id)).write(chain)
    except FileError as error:
        raise CheckpointError(str(error)) from error


async def states_held(connection: Connection) -> dict[tuple[int, str], list[str]]:
    """Which peers say that they give which state, by its round and digest."""
    peers = (await connection.membership.refresh()).peers
    asked = dict.fromkeys([*connection.handshake.peer_ids, *(peer.peer_id for peer in peers)])
    hellos = await asyncio.gather(*(_hello(connection, peer) for peer in list(asked)[:ASKED_MAX]))
    holders: dict[tuple[int, str], list[str]] = defaultdict(list)
    recorded = [(peer.peer_id, {peer.record.state_digest: peer.record.round}) for peer in peers]
    for peer_id, rounds in [*recorded, *hellos]:
        for digest, number in rounds.items():
            if peer_id not in holders[number, digest]:
                holders[number, digest].append(peer_id)
    return dict(holders)


async def _hello(connection: Connection, peer_id: str) -> tuple[str, dict[str, int]]:
    """What a peer says that it gives; nothing if it does not answer."""
    try:
        return peer_id, (await connection.exchange.hello(peer_id)).rounds
    except CallError:
        return peer_id, {}
