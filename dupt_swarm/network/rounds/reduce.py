"""The exchange `reduce`: a butterfly all-reduce, in which each member averages one share of the vector.

It begins when the roll is known; whoever has the average holds all contributions. Nobody can check a reducer,
so it is for members that trust one another.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from contextlib import suppress

import numpy as np
from torch import Tensor

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.allreduce import AllReduce, Given, Group
from dupt_swarm.network.averaging.reduce import Reducers
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.rounds.exchange import Averaged, Floor
from dupt_swarm.network.rounds.round import Roll
from dupt_swarm.replica.codec import build_codec, check_size
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.link import Brought, Choice
from dupt_swarm.replica.next_state import NextState
from dupt_swarm.replica.replay import average_form

LOOK_SECONDS = 1.0
ROLL_SECONDS = 0.1  # until it is seen that another roll was called
AVERAGES_KEPT = 2  # each is as large as the model

logger = logging.getLogger(__name__)


class Reduce:
    """See `RoundExchange`."""

    lasting = False

    def __init__(self, manifest: Manifest, numel: int, p2p: GuardedP2P, *, callable: bool = True) -> None:
        """Vectors have ``numel`` values; ``callable``: others can call us."""
        self._manifest, self._numel, self._p2p, self._callable = manifest, numel, p2p, callable
        self._me = str(p2p.peer_id)
        self._form = average_form(manifest, numel)
        self._reducers = Reducers(p2p, manifest)
        self._given: dict[str, tuple[Claim, memoryview]] = {}  # by digest: ours, of this round
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
        self._given = {digest: (claim, data)}
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
        claim, data = self._given[mine.digest]
        callable = [each.maker for each in roll.promises if each.callable]
        group = Group(roll.id, self._me, drawn((each.maker for each in roll.brought), roll.id), callable)
        given = Given(data, self._numel, claim.tokens, claim.round, _nobody)
        run = AllReduce(self._manifest, group, given, self._reducers.ask, self._p2p.bandwidth.download)
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


def _nobody(number: int, part: Tensor) -> None:
    """The average is read once it is whole."""
    del number, part
