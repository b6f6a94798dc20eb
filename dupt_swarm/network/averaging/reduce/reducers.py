"""Takes the parts that the members of our groups send us to be averaged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase
from hivemind.proto import averaging_pb2
from hivemind.utils.asyncio import achain, as_aiter

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.reduce.allreduce import AllReduce, Messages


class Reducers(ServicerBase):  # type: ignore[misc]
    """Those of our groups, by the group's id."""

    def __init__(self, p2p: P2P, manifest: Manifest) -> None:
        self._p2p, self._prefix, self._patience = p2p, manifest.swarm_id, manifest.rounds.chunk_seconds
        self._runners: dict[bytes, AllReduce] = {}
        self._more = asyncio.Event()  # set at the next group; another one takes its place then

    async def start(self) -> None:
        """Begin to answer."""
        await self.add_p2p_handlers(self._p2p, namespace=self._prefix)

    @contextmanager
    def reducing(self, runner: AllReduce) -> Iterator[None]:
        """Parts for the group of ``runner`` go to it."""
        self._runners[runner.group_id] = runner
        more, self._more = self._more, asyncio.Event()
        more.set()
        try:
            yield
        finally:
            del self._runners[runner.group_id]

    async def rpc_aggregate_part(
        self, stream: AsyncIterator[averaging_pb2.AveragingData], context: P2PContext
    ) -> AsyncIterator[averaging_pb2.AveragingData]:
        """The averages of the parts that a member sends."""
        first = await anext(stream)
        runner = await self._runner_of(first.group_id)
        if runner is None:
            yield averaging_pb2.AveragingData(code=averaging_pb2.BAD_GROUP_ID)
            return
        sender = str(context.remote_id)
        async with aclosing(runner.reduce_from(sender, achain(as_aiter(first), stream))) as averages:
            async for message in averages:
                yield message

    async def ask(self, peer: str, parts: Messages) -> Messages:
        """Send a member our parts; the averages that it returns."""
        stub = self.get_stub(self._p2p, PeerID.from_base58(peer), namespace=self._prefix)
        averages: Messages = await stub.rpc_aggregate_part(parts)
        return averages

    async def _runner_of(self, group_id: bytes) -> AllReduce | None:
        """A member may hear of its group before we do, so there is a little time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while group_id not in self._runners:
                    await self._more.wait()
        return self._runners.get(group_id)
