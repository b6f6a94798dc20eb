"""One download: different chunks from several donors at once, each checked on arrival."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar

from dupt_swarm.errors import NodeError
from dupt_swarm.network.p2p.bandwidth import TokenBucket
from dupt_swarm.network.p2p.pauses import Pauses
from dupt_swarm.network.p2p.rpc import CallError, Refusal
from dupt_swarm.network.task_group import TaskGroup, wait_at_most
from dupt_swarm.node.messages import Downloading
from dupt_swarm.replica.blob import CHUNK_BYTES, Assembly
from dupt_swarm.replica.contribution import CONTRIBUTION
from dupt_swarm.replica.offered import OFFERED
from dupt_swarm.speed import Speed

logger = logging.getLogger(__name__)

OVERDUE_SECONDS = 2.0
OVERDUE_RATIO = 3.0
STALLED_SECONDS = 10.0

Asked = TypeVar("Asked", bound=Hashable)


class ChunkQueue(Generic[Asked]):
    """The missing chunks of one download: waiting, or asked for from one donor, or several near the end.

    When no chunk waits any more, one that is overdue from all who were asked for it (it takes three times
    as long as others did) is asked for from another donor too, so that the end waits for nobody.
    """

    def __init__(self, missing: Iterable[int], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting = deque(sorted(missing))
        self._asked: dict[int, dict[Asked, float]] = {}
        self._usual_seconds = 0.0

    @property
    def waiting(self) -> int:
        """The number of chunks not requested from anybody."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """The number of requested chunks that may still arrive: without stalled ones."""
        since = self._clock() - STALLED_SECONDS
        return sum(max(asked.values()) > since for asked in self._asked.values())

    def holds(self, donor: Asked) -> bool:
        """Whether ``donor`` has open requests."""
        return any(donor in asked for asked in self._asked.values())

    def stalled(self, donor: Asked) -> bool:
        """Whether ``donor`` has owed a chunk for too long."""
        since = self._clock() - STALLED_SECONDS
        return any(asked.get(donor, math.inf) <= since for asked in self._asked.values())

    def take(self, donor: Asked, at_most: int) -> list[int]:
        """Chunks to ask ``donor`` for; none if there is nothing to do for it now."""
        numbers = [self._waiting.popleft() for _ in range(min(at_most, len(self._waiting)))]
        if not numbers and at_most > 0:
            numbers = self._overdue(donor)[:1]
        for number in numbers:
            # Not overdue before the request is out.
            self._asked.setdefault(number, {})[donor] = math.inf
        return numbers

    def sent(self, donor: Asked, numbers: Iterable[int]) -> None:
        """The request for ``numbers`` goes out now."""
        for number in numbers:
            if donor in self._asked.get(number, {}):
                self._asked[number][donor] = self._clock()

    def arrived(self, donor: Asked, number: int) -> list[Asked]:
        """``number`` came from ``donor``; returns the donors who were asked earlier, and are too slow."""
        asked = self._asked.pop(number, {})
        since = asked.pop(donor, math.inf)
        if since < math.inf:
            seconds = self._clock() - since
            self._usual_seconds += (seconds - self._usual_seconds) * (0.1 if self._usual_seconds else 1)
        return [other for other, earlier in asked.items() if earlier < since]

    def give_back(self, donor: Asked, numbers: Iterable[int]) -> None:
        """The request for ``numbers`` has ended; what nobody else is asked for waits again."""
        for number in sorted(numbers, reverse=True):
            asked = self._asked.get(number)
            if asked is None or asked.pop(donor, None) is None:
                continue
            if not asked:
                del self._asked[number]
                self._waiting.appendleft(number)

    def _overdue(self, donor: Asked) -> list[int]:
        before = self._clock() - max(OVERDUE_SECONDS, OVERDUE_RATIO * self._usual_seconds)
        return [
            number
            for number, asked in self._asked.items()
            if donor not in asked and max(asked.values()) < before
        ]


AVOID_SECONDS = 120.0  # donors that failed us are asked last for so long

Donors = Callable[[], Awaitable[Sequence[str]]]


def always(peers: Sequence[str]) -> Donors:
    """Donors that are the same whenever somebody asks."""

    async def donors() -> Sequence[str]:
        return peers

    return donors


@dataclass(eq=False)
class Donor:
    """One donor in one download.

    Attributes:
        peer: who it is.
        task: draws chunks from it; None before it is asked for any, and after it had to make way.
        since: when it was first asked for one.
        chunks: how many it has given.
        leaving: it makes way for another, when what it was asked for is here.
        busy: it had no place for us when it was asked last.
        reason: why it gave nothing lately, in words; empty if it gives.
    """

    peer: str
    task: asyncio.Task[None] | None = None
    since: float = math.inf
    chunks: int = 0
    leaving: bool = False
    busy: bool = False
    reason: str = ""

    @property
    def working(self) -> bool:
        """Whether it is being asked for chunks."""
        return self.task is not None and not self.task.done()

    @property
    def proved(self) -> bool:
        """Whether it has given a chunk."""
        return self.chunks > 0

    def gave(self) -> None:
        """A chunk has arrived from it."""
        self.chunks, self.reason = self.chunks + 1, ""


def reason_of(error: BaseException) -> str:
    """Why a donor failed, in words."""
    if isinstance(error, TimeoutError):
        return "it fell silent"
    return str(error) or type(error).__name__


def is_harmless(error: BaseException) -> bool:
    """Whether a donor that says so has not failed: it is busy, or the swarm has moved on."""
    return isinstance(error, CallError) and error.refusal in (Refusal.LATER, Refusal.NOT_HELD)


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

Ask = Callable[[str, list[int]], AsyncGenerator[memoryview, None]]


class Download:
    """Fills an assembly from several donors; if one fails, the others take over its chunks."""

    def __init__(
        self,
        assembly: Assembly,
        ask: Ask,
        avoided: Pauses,
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
        self._assembly, self._ask, self._avoided, self._tell = assembly, ask, avoided, tell
        self._bucket = bucket or TokenBucket(None)
        kind = assembly.index.header.get("kind")
        self._urgent = kind == CONTRIBUTION  # a group waits for it
        self._patient = kind == OFFERED  # nobody does
        self._queue: ChunkQueue[Donor] = ChunkQueue(assembly.missing)
        self._donors: dict[str, Donor] = {}
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
            self._try_another()
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
            await self._change()
        self._report()

    @property
    def _givers(self) -> list[Donor]:
        """The donors that give at the moment."""
        return [
            donor
            for donor in self._donors.values()
            if donor.working and not (donor.busy or donor.leaving or self._queue.stalled(donor))
        ]

    @property
    def _untried(self) -> list[Donor]:
        """Donors that have not been asked yet, without those that are avoided."""
        return [
            donor
            for donor in self._donors.values()
            if donor.task is None and not donor.leaving and donor.peer not in self._avoided
        ]

    @property
    def _room(self) -> int:
        """How many donors may give at once."""
        return min(DONORS_MAX, self._chunks_allowed)

    @property
    def _chunks_allowed(self) -> int:
        """How many chunks may be under way."""
        return max(FIRST_CHUNKS, int(self._speed.per_second * AHEAD_SECONDS / CHUNK_BYTES))

    def _hire(self) -> None:
        """Start as many donors as the link has room for; avoided ones only if there are no others."""
        choice, giving = self._untried, len(self._givers)
        if not choice and not giving:
            choice = [donor for donor in self._donors.values() if donor.task is None]
        for donor in choice[: max(0, self._room - giving)]:
            self._start(donor)

    def _start(self, donor: Donor) -> None:
        donor.leaving = False
        donor.task = asyncio.create_task(self._draw_from(donor))

    def _try_another(self) -> None:
        """Ask one more than there is room for, or in place of the slowest: the first may be slow ones."""
        untried, givers, now = self._untried, self._givers, time.monotonic()
        if not untried or not givers:
            return
        if len(givers) > self._room:
            known = [donor for donor in givers if now - donor.since >= RECRUIT_SECONDS]
            if not known:
                return
            min(known, key=lambda donor: donor.chunks / (now - donor.since)).leaving = True
        self._start(untried[0])

    async def _draw_from(self, donor: Donor) -> None:
        """Fetch chunks from ``donor`` until there is nothing left to fetch, or it fails."""
        try:
            async with TaskGroup() as lanes:
                for _ in range(LANES):
                    lanes.create_task(self._lane(donor))
        except* (CallError, ValueError, TimeoutError) as group:
            error = group.exceptions[0]
            donor.reason = reason_of(error)
            if not is_harmless(error):
                self._avoided.note(donor.peer, useful=False)
        finally:
            donor.busy = False
            if donor.leaving:
                donor.task = None  # should no other give, it is asked again
            self._notify()

    async def _lane(self, donor: Donor) -> None:
        while self._assembly.missing and not donor.leaving:
            numbers = self._queue.take(donor, self._share(donor))
            if not numbers:
                await self._change()
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
        lanes = LANES * max(1, len(self._givers))
        most = REQUEST_CHUNKS if donor.proved else 1
        room = self._chunks_allowed - self._queue.under_way
        if donor.proved:  # it lets those be first that have not been asked yet
            room -= sum(other.since == math.inf for other in self._givers)
        return max(0, min(most, room, max(1, self._queue.waiting // (2 * lanes))))

    async def _request(self, donor: Donor, numbers: list[int]) -> None:
        expected = sum(self._assembly.index.chunk_sizes[number] for number in numbers)
        if self._patient:
            await self._bucket.take_patiently(expected)
        else:
            await self._bucket.take(expected, urgent=self._urgent)
        self._queue.sent(donor, numbers)
        donor.since = min(donor.since, time.monotonic())
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
            self._avoided.note(other.peer, useful=False)
            if other.task is not None:
                other.task.cancel()
        self._notify()

    def _report(self) -> None:
        self._reported = time.monotonic()
        total = sum(self._assembly.index.sizes)
        done = total - self._assembly.bytes_missing
        self._tell(Downloading(done, total, self._speed.per_second, len(self._givers)))

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

    async def _change(self) -> None:
        await wait_at_most(self._changed, REPORT_SECONDS)
