"""A node that only looks: it publishes nothing, serves nobody, and accepts no connections."""

from __future__ import annotations

from dataclasses import dataclass

from dupt_swarm.errors import NodeError
from dupt_swarm.network.auditing import audit
from dupt_swarm.network.host import Host
from dupt_swarm.network.joining.connection import Connection
from dupt_swarm.network.pulling import pull
from dupt_swarm.node.commands import Audit, Pull
from dupt_swarm.node.messages import AuditedRound, Joined, Pulled
from dupt_swarm.node.view import View


@dataclass(frozen=True)
class Observer:
    """The node of `dupt-peer status` and `audit`, `dupt-model pull` and the monitor, which only look."""

    connection: Connection
    host: Host

    async def joined(self) -> Joined:
        """What the parent process gets to know."""
        return Joined(
            peer_id=str(self.connection.p2p.peer_id),
            addresses=(),
            host_maddrs=self.connection.settings.host_maddrs,
            manifest=self.connection.manifest.canonical_bytes(),
            tokenizer=b"",
            layout=(),
            buffer_names=(),
            state=None,
        )

    async def view(self) -> View:
        """Read the records of all peers now.

        Raises:
            NodeError: it has lost everybody; the records that it still has are old.
        """
        view = await self.connection.membership.refresh()
        if not await self.connection.p2p.list_peers():
            raise NodeError("no peer of the swarm can be reached")
        return view

    async def pull(self, order: Pull) -> Pulled:
        """Fetch a replica state; see `Pull`."""
        return await pull(self.connection, self.host, order)

    async def audit(self, order: Audit) -> tuple[AuditedRound, ...]:
        """Compute past rounds again; see `Audit`."""
        return await audit(self.connection, self.host, order)
