"""The exchange `reduce`: a butterfly all-reduce, in which each member averages one share of the vector.

It begins when the roll is known; whoever has the average holds all contributions. Nobody can check a reducer,
so it is for members that trust one another.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import AsyncIterator  # noqa: UP035 (hivemind recognises streams by this one only)

import numpy as np
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase
from hivemind.proto import averaging_pb2
from hivemind.utils.asyncio import achain, as_aiter

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.rounds.allreduce import AllReduce, Messages, Parts
from dupt_swarm.network.rounds.exchange import Averaged, Floor
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.replica.codec import build_codec, check_size
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.link import Brought, Choice
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.replay import average_form

LOOK_SECONDS = 1.0
ROLL_SECONDS = 0.1  # until it is seen that another roll was called
AVERAGES_KEPT = 2  # each is as large as the model
GIVEN_KEPT = 2  # a roll may still have the one before

logger = logging.getLogger(__name__)


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


class Reduce:
    """See `RoundExchange`."""

    lasting = False

    def __init__(self, manifest: Manifest, numel: int, p2p: GuardedP2P, *, callable: bool = True) -> None:
        """Vectors have ``numel`` values; ``callable``: others can call us."""
        self._manifest, self._numel, self._p2p, self._callable = manifest, numel, p2p, callable
        self._me = str(p2p.peer_id)
        self._form = average_form(manifest, numel)
        self._reducers = Reducers(p2p, manifest)
        self._given: OrderedDict[str, tuple[Claim, memoryview]] = OrderedDict()  # ours, by digest
        # By what went into them: what was accepted in an earlier ballot may be proposed again.
        self._done: OrderedDict[tuple[Brought, ...], AllReduce] = OrderedDict()

    async def open(self) -> None:
        """See `RoundExchange`."""
        if self._callable:
            await self._reducers.start()

    async def prepare(self, contribution: bytes | memoryview, claim: Claim) -> Brought:
        """See `RoundExchange`."""
        encoding = self._manifest.encoding
        check_size(build_codec(encoding.contribution, encoding), contribution, self._numel)

        def copy() -> tuple[str, memoryview]:
            data = np.frombuffer(contribution, np.uint8).copy().data
            return hashlib.sha256(f"{claim}".encode() + data).hexdigest(), data

        digest, data = await asyncio.to_thread(copy)
        self._given[digest] = claim, data
        while len(self._given) > GIVEN_KEPT:
            self._given.popitem(last=False)
        return Brought(claim.maker, digest, claim.tokens)

    async def run(self, floor: Floor) -> None:
        """See `RoundExchange`."""
        tried: set[str] = set()
        while True:
            roll, proposed = floor.roll, floor.proposed
            if proposed is not None and proposed.brought in self._done:
                floor.hold([each.digest for each in proposed.brought])
            if roll is None or roll.id in tried or self._me not in {each.maker for each in roll.brought}:
                await floor.change(LOOK_SECONDS)
                continue
            tried.add(roll.id)
            run = asyncio.create_task(self._reduce(roll))
            try:
                while not run.done() and floor.roll == roll:
                    await asyncio.wait([run], timeout=ROLL_SECONDS)
                if not run.done():
                    continue
                if run.result():
                    floor.hold([each.digest for each in roll.brought])
                else:
                    floor.give_up(roll)
            finally:
                run.cancel()

    async def average(self, following: NextState, choice: Choice) -> Averaged:
        """See `RoundExchange`."""
        run, before = self._done.get(choice.brought), following.before
        if run is None:
            raise ValueError("an average of others than those who have averaged")
        claim = Claim(before.round, before.digest, run.tokens)

        def build() -> Averaged:
            blob = self._form.build(claim, run.encoded)
            for number, part in enumerate(self._form.parts(blob)):
                following.take(number, part)
            return Averaged(run.tokens, choice.makers, {blob.digest: blob}, run.rejected)

        return await asyncio.to_thread(build)

    async def _reduce(self, roll: Roll) -> bool:
        """Average with those of the roll; whether all shares have arrived in time."""
        [mine] = [each for each in roll.brought if each.maker == self._me]
        if mine.digest not in self._given:  # brought before this process was started
            return False
        claim, data = self._given[mine.digest]
        if not any(each.callable for each in roll.promises):  # nobody could reduce
            return False
        parts = Parts(data, self._numel, self._manifest.encoding)
        download = self._p2p.bandwidth.download
        run = AllReduce(self._manifest, roll, claim, parts, self._reducers.ask, download)
        with self._reducers.reducing(run), suppress(TimeoutError):
            async with asyncio.timeout(self._manifest.rounds.allreduce_seconds):
                await run.run()
                if not run.missing:
                    self._done[roll.brought] = run
                    while len(self._done) > AVERAGES_KEPT:
                        self._done.popitem(last=False)
                    return True
        logger.warning("the all-reduce has failed without %s", ", ".join(sorted(run.missing)))
        return False
