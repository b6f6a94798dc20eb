"""What every node has that is connected to a swarm, observers included."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from hivemind.dht.node import DHTNode

from dupt_swarm.disk.folders import ADDRESS_BOOK_FILE
from dupt_swarm.errors import AdmissionError
from dupt_swarm.manifest import Manifest
from dupt_swarm.network.admission import build_admission
from dupt_swarm.network.host import Host, background, end
from dupt_swarm.network.joining.entry import enter_dht, reach
from dupt_swarm.network.joining.handshake import Handshake, introduce
from dupt_swarm.network.members.identity import load_identity
from dupt_swarm.network.members.membership import Membership
from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.daemon import daemon_failure
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.reach.reachability import Started, start_reachable
from dupt_swarm.network.states.exchange import Exchange
from dupt_swarm.network.states.hello import Hello
from dupt_swarm.node.address_book import AddressBook
from dupt_swarm.organiser.invitation import check_invited
from dupt_swarm.settings import NodeSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Connection:
    """A node that has met its swarm.

    Attributes:
        settings: of this peer.
        book: peers met before.
        started: the libp2p daemon.
        exchange: serves and fetches blobs.
        handshake: what the initial peers told.
        dht: a node of hivemind's DHT, in which peers meet.
        membership: our record, and those of the others.
    """

    settings: NodeSettings
    book: AddressBook
    started: Started
    exchange: Exchange
    handshake: Handshake
    dht: DHTNode
    membership: Membership

    @property
    def p2p(self) -> GuardedP2P:
        """hivemind's side of the daemon."""
        return self.started.p2p

    @property
    def manifest(self) -> Manifest:
        """The swarm's."""
        return self.handshake.manifest


async def connect_to_swarm(
    settings: NodeSettings, host: Host, stack: AsyncExitStack, *, alone: bool
) -> Connection:
    """Start libp2p, find the swarm, and enter its DHT.

    Args:
        settings: of this peer; with an identity, which the daemon and the records must share.
        host: the process.
        stack: gets whatever has to be closed.
        alone: whether this peer has all that it needs, so that nobody has to answer.

    Raises:
        DuptError: unreachable, another swarm than expected, …
    """
    assert settings.identity_path is not None
    key = load_identity(settings.identity_path)
    book = AddressBook(settings.own_folder and settings.own_folder / ADDRESS_BOOK_FILE)
    started = await start_reachable(settings, host.run_dir, book.addresses)
    p2p = started.p2p
    p2p.limits.members = book.peer_ids  # until records say who is one
    stack.push_async_callback(end, "the libp2p daemon", p2p.shutdown)
    await stack.enter_async_context(background(_guard_daemon(p2p, host)))
    p2p.bandwidth = Bandwidth(settings.max_upload, settings.max_download)
    exchange = Exchange(p2p)
    await p2p.serve(exchange)
    reached = await reach(started, book, alone=alone)
    handshake = await introduce(exchange, settings, reached)
    handshake = await _come_in(p2p, settings, handshake, alone=alone)
    await stack.enter_async_context(background(p2p.admission.keep_forever()))
    # Unreachable peers run the DHT in client mode, because others cannot query them.
    client_mode = settings.role == "observer" or started.reach == "client"
    dht = await enter_dht(p2p, handshake.share(reached), client_mode=client_mode)
    stack.push_async_callback(end, "the DHT node", dht.shutdown)
    membership = Membership(handshake.manifest, p2p, key, lambda: [*handshake.peer_ids, *book.peer_ids])
    stack.push_async_callback(membership.leave)
    if settings.role != "observer":
        await p2p.serve(membership.gossip)
    await membership.gossip.begin()
    membership.look()
    await stack.enter_async_context(background(membership.gossip.pull_forever()))
    return Connection(settings, book, started, exchange, handshake, dht, membership)


async def _come_in(
    p2p: GuardedP2P, settings: NodeSettings, handshake: Handshake, *, alone: bool
) -> Handshake:
    """Show our invitation to those who answered, if the swarm admits by invitation.

    Returns:
        ``handshake``, with those of them who are admitted themselves: nobody else has a say. If there is
        nobody, or they do not admit us, without anybody: who has all that it needs goes on ``alone``.

    Raises:
        AdmissionError: we need them, and they do not admit us, or have not shown that they are admitted.
    """
    if not alone:
        check_invited(handshake.manifest, settings.invitation)
    if not settings.manifest:
        p2p.admission = build_admission(p2p, settings, handshake.manifest)
    await p2p.serve(p2p.admission)
    try:
        await p2p.admission.introduce(handshake.peer_ids)
        return replace(handshake, hellos=_admitted(p2p, handshake))
    except AdmissionError as error:
        if not alone:
            raise
        logger.warning("%s", error)
        return replace(handshake, hellos={})


def _admitted(p2p: GuardedP2P, handshake: Handshake) -> dict[str, Hello]:
    objections = {peer_id: p2p.admission.objection(peer_id) for peer_id in handshake.hellos}
    if objections and all(objections.values()):
        peer_id, objection = next(iter(objections.items()))
        raise AdmissionError(
            f"no initial peer has shown that it is admitted to this swarm ({peer_id}: {objection}); "
            f"try again, or name others",
            setting="initial_peers",
        )
    return {peer_id: hello for peer_id, hello in handshake.hellos.items() if not objections[peer_id]}


async def _guard_daemon(p2p: GuardedP2P, host: Host) -> None:
    logger.error("the libp2p daemon is of no use any more (%s)", await daemon_failure(p2p))
    host.give_up()
