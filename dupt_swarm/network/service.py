"""What a node does when its parent process tells it to."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import Any

from dupt_swarm.errors import NodeError
from dupt_swarm.network.auditing import audit
from dupt_swarm.network.host import Host
from dupt_swarm.network.joining.connection import Connection, connect_to_swarm
from dupt_swarm.network.joining.handshake import discover
from dupt_swarm.network.joining.preflight import preflight
from dupt_swarm.network.members.identity import with_identity
from dupt_swarm.network.participant import Participant
from dupt_swarm.network.pulling import pull
from dupt_swarm.network.start_participant import take_part
from dupt_swarm.network.watching import Watching
from dupt_swarm.node.commands import (
    Adopt,
    Attest,
    Audit,
    CancelRound,
    Check,
    Command,
    Discover,
    EndRound,
    Join,
    Judge,
    Publish,
    Pull,
    ReadLedger,
    ReadView,
    ReadVoters,
    Save,
    WantOffered,
)
from dupt_swarm.node.messages import Joined
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Ledger

logger = logging.getLogger(__name__)


class NodeService:
    """The node of one peer: outside of a swarm until `Join` comes; then it takes part, or only looks.

    Those that look (`dupt-peer status` and `audit`, `dupt-model pull`, the monitor) publish nothing, serve
    nobody, and accept no connections.
    """

    def __init__(self, host: Host) -> None:
        """A node that has done nothing yet, in the process ``host``."""
        self._host = host
        self._node: Connection | Participant | None = None  # a connection is all that an observer has
        self._watching: Watching | None = None
        self._started = AsyncExitStack()

    async def execute(self, command: Command[Any]) -> object:
        """Do it.

        Returns:
            The command's reply.

        Raises:
            DuptError: why it could not be done.
        """
        match command:
            case Check(settings):
                return command.reply(await preflight(settings, self._host.run_dir))
            case Discover(initial_peers, swarm_id):
                handshake = await discover(self._host.run_dir, initial_peers, swarm_id)
                return command.reply(handshake.manifest.canonical_bytes())
            case Join():
                return command.reply(await self._join(command))
            case ReadView():
                return command.reply(await self._view())
            case ReadLedger():
                return command.reply(await self._ledger())
            case Pull():
                return command.reply(await pull(self._observer, self._host, command))
            case Audit():
                return command.reply(await audit(self._observer, self._host, command))
            case Publish(update, now):
                self._participant.publish(update, now=now)
                return command.reply(None)
            case EndRound():
                return command.reply(await self._participant.end_round(command))
            case Judge(digest, accepted):
                self._participant.judgement.hear(digest, accepted=accepted)
                return command.reply(None)
            case CancelRound():
                self._participant.cancel_round()
                return command.reply(None)
            case Adopt(state):
                return command.reply(await self._participant.adopt(state))
            case ReadVoters():
                return command.reply(self._participant.voters())
            case Attest(attestation):
                self._participant.connection.exchange.attestation = attestation
                return command.reply(None)
            case WantOffered(files):
                self._participant.offered.want(files)
                return command.reply(None)
            case Save(path):
                return command.reply(await self._participant.save(path))
            case _:
                raise TypeError(f"{command}: not a command of a node")

    async def close(self) -> None:
        """Leave the swarm, and end what was started, the last thing first."""
        await self._started.aclose()

    async def _join(self, order: Join) -> Joined:
        settings = order.settings
        bootstrapped = settings.role == "bootstrap" and settings.checkpoint is not None
        alone = order.predecessor is not None or bootstrapped
        if order.predecessor:
            logger.info("started again, because the node before %s", order.predecessor.ending)
        async with AsyncExitStack() as stack:
            known = with_identity(settings, self._host.run_dir, stack)
            connection = await connect_to_swarm(known, self._host, stack, alone=alone)
            node: Connection | Participant = connection
            if settings.role == "observer":
                joined = Joined(
                    peer_id=str(connection.p2p.peer_id),
                    addresses=(),
                    host_maddrs=settings.host_maddrs,
                    manifest=connection.manifest.canonical_bytes(),
                )
            else:
                node = await take_part(connection, order, self._host, stack)
                joined = await node.joined()
            self._node, self._started = node, stack.pop_all()
        _log_joined(joined, settings.role, connection.manifest.swarm_id, connection.started.reach)
        return joined

    async def _view(self) -> View:
        """Read the records of all peers now.

        Raises:
            NodeError: an observer has lost everybody; the records that it still has are old.
        """
        node = self._joined
        if isinstance(node, Participant):
            return await node.connection.membership.refresh()
        view = await node.membership.refresh()
        if not await node.p2p.list_peers():
            raise NodeError("no peer of the swarm can be reached")
        return view

    async def _ledger(self) -> Ledger:
        """What each peer has contributed, ever."""
        self._watching = self._watching or Watching(self._observer)
        return await self._watching.ledger()

    @property
    def _joined(self) -> Connection | Participant:
        if self._node is None:
            raise NodeError("this node has not joined a swarm yet")
        return self._node

    @property
    def _observer(self) -> Connection:
        node = self._joined
        if isinstance(node, Participant):
            raise NodeError(
                "only an observer fetches a state, audits or reads the ledger without taking part"
            )
        return node

    @property
    def _participant(self) -> Participant:
        node = self._joined
        if not isinstance(node, Participant):
            raise NodeError("an observer takes no part in a swarm")
        return node


def _log_joined(joined: Joined, role: str, swarm_id: str, reach: str) -> None:
    if joined.state is None:
        logger.info("joined %s as %s %s", swarm_id, role, joined.peer_id)
        return
    where = ", ".join(joined.addresses) or "nowhere"
    logger.info("joined %s as %s %s, %s at %s", swarm_id, role, joined.peer_id, reach, where)
    logger.info("at round %d: state %.8s", joined.state.round, joined.state.digest)
