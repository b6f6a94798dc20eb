"""Services that call one another in this process, for tests that are about something else than libp2p."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from dupt_swarm.network.p2p.bandwidth import Bandwidth
from dupt_swarm.network.p2p.limits import PeerLimits
from dupt_swarm.network.p2p.rpc import CallError, Method, Refusal, StreamMethod


class Direct:
    """Stands in for `GuardedP2P`: calls a service by its name, and packs and reads what is said."""

    def __init__(self, name: str, services: dict[str, Any], bandwidth: Bandwidth | None = None) -> None:
        """``services`` are those of all by name; whoever is not in it cannot be reached."""
        self.peer_id, self._services = name, services
        self.refused: Counter[str] = Counter()
        self.bandwidth, self.limits = bandwidth or Bandwidth(), PeerLimits(self.refused)

    async def call(self, peer: str, method: Method[Any, Any], request: Any, seconds: float = 0.0) -> Any:
        """As of `GuardedP2P`."""
        del seconds
        handler = self._handler(str(peer), method)
        reply = await handler(method.request.read(request.pack()), self.peer_id)
        return method.reply.read(reply.pack())

    async def stream(
        self, peer: str, method: StreamMethod[Any], request: Any
    ) -> AsyncGenerator[memoryview, None]:
        """As of `GuardedP2P`."""
        handler = self._handler(str(peer), method)
        async with aclosing(handler(method.request.read(request.pack()), self.peer_id)) as replies:
            async for reply in replies:
                await self._services[str(peer)]._p2p.bandwidth.upload.take(len(reply))
                yield memoryview(bytes(reply))

    def _handler(self, peer: str, method: Any) -> Any:
        if peer not in self._services:
            raise CallError(Refusal.UNREACHABLE, "connection refused")
        return getattr(self._services[peer], method.name.rpartition(".")[2])
