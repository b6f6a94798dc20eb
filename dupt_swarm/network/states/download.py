"""One download: different chunks from several donors at once, each checked on arrival."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from hivemind.p2p import PeerID

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p.bandwidth import TokenBucket
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.states.chunk_queue import ChunkQueue
from dupt_swarm.network.states.donor import Backoff, Donor, Donors, is_harmless, reason_of
from dupt_swarm.node.messages import Downloading
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly
from dupt_swarm.replica.contribution import CONTRIBUTION
from dupt_swarm.speed import Speed

CHUNK_SECONDS = 30.0  # a donor that needs longer for a chunk of 1 MiB counts as gone
RECRUIT_SECONDS = 3.0
REPORT_SECONDS = 0.25
BUSY_SECONDS = 1.0
# Two requests under way per donor: while one waits for its first chunk, the other fills the link.
LANES = 2
REQUEST_CHUNKS = 4
# On a slow link, many chunks requested at once would make every donor look silent.
AHEAD_SECONDS = 5.0
FIRST_CHUNKS = 4
DONORS_MAX = 16

Ask = Callable[[PeerID, list[int]], AsyncGenerator[memoryview, None]]

logger = logging.getLogger(__name__)


class Download:
    """Fills an assembly from several donors; if one fails, the others take over its chunks."""

    def __init__(
        self,
        assembly: Assembly,
        ask: Ask,
        avoided: Backoff,
        bucket: TokenBucket | None = None,
        tell: Callable[[Downloading], None] = lambda _: None,
    ) -> None:
        """
        Args:
            assembly: what is to be filled; what it has already is not asked for.
            ask: yields the chunks asked for, in that order; raises `CallError`.
            avoided: donors to ask last; those that fail are added.
            bucket: what we may receive.
            tell: hears how far it is, several times a second.
        """
        self._assembly, self._ask, self._backoff, self._tell = assembly, ask, avoided, tell
        self._bucket = bucket or TokenBucket(None)
        self._urgent = assembly.index.header.get("kind") == CONTRIBUTION  # a group waits for it
        self._queue: ChunkQueue[Donor] = ChunkQueue(assembly.missing)
        self._donors: dict[PeerID, Donor] = {}
        self._speed, self._reported = Speed(), 0.0
        self._changed = asyncio.Event()

    async def run(self, donors: Donors, seconds: float) -> None:
        """Download what is missing.

        Args:
            donors: asked for donors again and again, since peers come and go meanwhile.
            seconds: to give up after.

        Raises:
            NodeError: it is not complete; says why for each donor. What arrived is in the assembly.
        """
        if not self._assembly.missing:
            return
        started, missing = time.monotonic(), self._assembly.bytes_missing
        recruiting = asyncio.create_task(self._recruit(donors))
        try:
            async with asyncio.timeout(seconds):
                await self._supervise()
        except TimeoutError:
            raise self._failure() from None
        finally:
            tasks = [recruiting, *(donor.task for donor in self._donors.values() if donor.task)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        logger.info(
            "fetched %.1f MB of %.8s from %d donors in %.1f s",
            *(missing / 1e6, self._assembly.index.digest),
            *(sum(donor.proved for donor in self._donors.values()), time.monotonic() - started),
        )

    async def _recruit(self, donors: Donors) -> None:
        while True:
            try:
                found = list(await donors())
            except Exception as error:  # the network may be away for a while
                logger.debug("no donors were found: %r", error)
            else:
                random.shuffle(found)  # else all joiners would ask the same donors first
                for peer in found:
                    self._donors.setdefault(peer, Donor(peer))
            self._hire()
            self._notify()
            await asyncio.sleep(RECRUIT_SECONDS)

    async def _supervise(self) -> None:
        await self._changed.wait()  # the first donors are known
        while self._assembly.missing:
            self._hire()
            if not any(donor.working for donor in self._donors.values()):
                raise self._failure()
            if time.monotonic() - self._reported > REPORT_SECONDS:
                self._report()
            await self._change(REPORT_SECONDS)
        self._report()

    @property
    def _giving(self) -> int:
        """How many donors give at the moment."""
        return sum(
            donor.working and not donor.busy and not self._queue.stalled(donor)
            for donor in self._donors.values()
        )

    @property
    def _chunks_allowed(self) -> int:
        """How many chunks may be under way."""
        return max(FIRST_CHUNKS, int(self._speed.per_second * AHEAD_SECONDS / CHUNK_BYTES))

    def _hire(self) -> None:
        """Start as many donors as the link has room for; avoided ones only if there are no others."""
        new = [donor for donor in self._donors.values() if donor.task is None]
        choice = [donor for donor in new if donor.peer not in self._backoff]
        giving = self._giving
        if not choice and not giving:
            choice = new
        room = min(DONORS_MAX, self._chunks_allowed) - giving
        for donor in choice[: max(0, room)]:
            donor.task = asyncio.create_task(self._draw_from(donor))

    async def _draw_from(self, donor: Donor) -> None:
        """Fetch chunks from ``donor`` until there is nothing left to fetch, or it fails."""
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(LANES):
                    lanes.create_task(self._lane(donor))
        except* (CallError, ValueError, TimeoutError) as group:
            error = group.exceptions[0]
            donor.reason = reason_of(error)
            if not is_harmless(error):
                self._backoff.add(donor.peer)
        finally:
            donor.busy = False
            self._notify()

    async def _lane(self, donor: Donor) -> None:
        while self._assembly.missing:
            numbers = self._queue.take(donor, self._share(donor))
            if not numbers:
                await self._change(REPORT_SECONDS)
                continue
            try:
                await self._request(donor, numbers)
                donor.busy = False
                continue
            except CallError as error:
                if error.refusal is not Refusal.LATER:
                    raise
                donor.busy, donor.reason = True, "it was busy"
            finally:
                self._queue.give_back(donor, numbers)
                self._notify()
            await asyncio.sleep(BUSY_SECONDS * random.uniform(0.5, 1.5))

    def _share(self, donor: Donor) -> int:
        """How many chunks to ask for at once: fewer when few are left, so that all donors end together."""
        if not donor.proved and self._queue.holds(donor):
            return 0  # a donor that may be silent gets no second chunk before it has given the first
        if self._bucket.rate is not None or self._queue.waiting == 0:
            return 1
        lanes = LANES * max(1, self._giving)
        most = REQUEST_CHUNKS if donor.proved else 1
        room = self._chunks_allowed - self._queue.under_way
        return max(0, min(most, room, max(1, self._queue.waiting // (2 * lanes))))

    async def _request(self, donor: Donor, numbers: list[int]) -> None:
        expected = sum(self._assembly.index.chunk_sizes[number] for number in numbers)
        await self._bucket.take(expected, urgent=self._urgent)
        self._queue.sent(donor, numbers)
        try:
            async with aclosing(self._ask(donor.peer, numbers)) as replies:
                for number in numbers:
                    async with asyncio.timeout(CHUNK_SECONDS):
                        data = await anext(replies, None)
                    if data is None:
                        raise ValueError("the donor stopped sending")
                    expected -= len(data)
                    self._receive(donor, number, data)
        finally:
            self._bucket.give_back(max(0, expected))

    def _receive(self, donor: Donor, number: int, data: memoryview) -> None:
        if number not in self._assembly.missing:
            return  # another donor was asked for it too, and was faster
        self._assembly.put(number, data)
        self._speed.add(len(data))
        donor.gave()
        for other in self._queue.arrived(donor, number):
            other.reason = "it was slow"
            self._backoff.add(other.peer)
            if other.task is not None:
                other.task.cancel()
        self._notify()

    def _report(self) -> None:
        self._reported = time.monotonic()
        total = sum(self._assembly.index.sizes)
        done = total - self._assembly.bytes_missing
        self._tell(Downloading(done, total, self._speed.per_second, self._giving))

    def _failure(self) -> NodeError:
        reasons = {
            donor.peer: donor.reason or "it took too long"
            for donor in self._donors.values()
            if donor.reason or donor.working
        }
        told = "; ".join(f"{peer}: {reason}" for peer, reason in reasons.items())
        return NodeError(f"no peer could give the data; it will be tried again: {told or 'nobody has it'}")

    def _notify(self) -> None:
        """Wake all tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
