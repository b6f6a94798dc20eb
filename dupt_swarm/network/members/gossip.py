"""How records spread: pushed to others when they are published, and pulled from others all the time.

What is new and matters at once floods the swarm: whoever hears of it passes it on once, to a few who were
not told. All else is told to those who are connected, or to some of them, and the rest pull it: every second
or so each peer asks another for what it lacks. Whoever can be called by nobody gets everything by that, too.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack

from dupt_swarm.network.members.identity import NAME_BYTES, short_name
from dupt_swarm.network.members.records import RECORD_BYTES_MAX, RECORDS_MAX, Records, SignedRecord
from dupt_swarm.network.p2p.guard import GuardedP2P
from dupt_swarm.network.p2p.limits import Budget
from dupt_swarm.network.p2p.rpc import CallError, Raw, rpc
from dupt_swarm.replica.plain import unpack

# To so many who are connected a record is told, and if they are more, to so many of them.
ALL_MAX, SOME = 16, 8
PASSED_ON = 4  # so many are told by each who hears of it
# Passing on is what multiplies a message: beyond so many per second and at once records wait to be pulled.
TRUSTED_RATE, TRUSTED_AT_ONCE = 200.0, 2000.0
OTHERS_RATE, OTHERS_AT_ONCE = 20.0, 200.0
TOLD_MAX = 64  # names in one message
TOLD_BYTES = RECORD_BYTES_MAX + NAME_BYTES * TOLD_MAX + 256
PULL_SECONDS, PULL_SECONDS_PER_PEER, PULL_SECONDS_MAX = 1.0, 0.02, 5.0
# Answers are bounded: whoever lacks more asks again at once, so often, and in the beginning more often.
AGAIN_MAX, FIRST_AGAIN_MAX = 8, 32
ANSWER_SECONDS = 5.0
# So long one waits for those who are told, or asked; then for any one of them, if none has answered.
PATIENCE_SECONDS, FIRST_ANSWER_SECONDS = 0.5, 3.0
MET_MAX = 4  # are asked in the beginning
HALF = 2  # of those that are asked when a view is wanted
REPLY_BYTES = 1 << 16
Result = TypeVar("Result")

KNOWN = struct.Struct(f">{NAME_BYTES}sd")  # of a record its owner's short name, and when it expires


@dataclass(frozen=True)
class Told:
    """A record that one peer tells another.

    Attributes:
        data: as its owner signed it.
        names: short ones of those who are told anyway.
        urgent: pass it on.
    """

    data: bytes
    names: tuple[bytes, ...] = ()
    urgent: bool = False

    def pack(self) -> bytes:
        """As it travels."""
        return bytes(msgpack.packb([self.data, b"".join(self.names[-TOLD_MAX:]), self.urgent]))

    @classmethod
    def read(cls, data: bytes) -> Told:
        """The inverse of `pack`.

        Raises:
            ValueError: it is malformed.
        """
        record, names, urgent = _fields(data, bytes, bytes, bool)
        if len(names) % NAME_BYTES or len(names) > NAME_BYTES * TOLD_MAX or len(record) > RECORD_BYTES_MAX:
            raise ValueError("not a record that is told")
        starts = range(0, len(names), NAME_BYTES)
        return cls(record, tuple(names[start : start + NAME_BYTES] for start in starts), urgent)


@dataclass(frozen=True)
class Request:
    """What a peer knows already that asks for records.

    Attributes:
        own: its own record, if the other one may lack it; else empty.
        known: when those expire that it knows, by their owners' short names.
    """

    own: bytes
    known: dict[bytes, float]

    def pack(self) -> bytes:
        """As it travels; 16 bytes for each that is known."""
        return bytes(msgpack.packb([self.own, b"".join(KNOWN.pack(*each) for each in self.known.items())]))

    @classmethod
    def read(cls, data: bytes) -> Request:
        """The inverse of `pack`.

        Raises:
            ValueError: it is malformed, or more are known than can be.
        """
        own, known = _fields(data, bytes, bytes)
        if len(known) % KNOWN.size or len(known) > KNOWN.size * RECORDS_MAX or len(own) > RECORD_BYTES_MAX:
            raise ValueError("not a request for records")
        return cls(own, dict(KNOWN.iter_unpack(known)))


@dataclass(frozen=True)
class Answer:
    """Records for one who asked.

    Attributes:
        records: each as its owner signed it; empty: what was there cannot be one.
        more: whether it lacks more than these.
    """

    records: tuple[bytes, ...]
    more: bool

    def pack(self) -> bytes:
        """As it travels."""
        return bytes(msgpack.packb([self.records, self.more]))

    @classmethod
    def read(cls, data: bytes) -> Answer:
        """The inverse of `pack`; a record that is malformed spoils no others.

        Raises:
            ValueError: it is malformed.
        """
        records, more = _fields(data, list, bool)
        if len(records) > RECORDS_MAX:
            raise ValueError("too many records")
        return cls(tuple(each if isinstance(each, bytes) else b"" for each in records), more)


def _fields(data: bytes, *types: type) -> list[Any]:
    tree = unpack(data)
    if not isinstance(tree, list) or tuple(map(type, tree)) != types:
        raise ValueError("not a message about records")
    return tree


class Gossip:
    """Tells others of records, and asks them for more.

    None is called but who is connected, or was met: libp2p would dial anybody. Some of those asked were met:
    invented peers are many. None is told but whose record is known: it takes part, and is admitted.
    """

    def __init__(
        self,
        p2p: GuardedP2P,
        records: Records,
        *,
        met: Callable[[], Collection[str]],
        trusted: Callable[[], Collection[str]],
        on_change: Callable[[], None],
    ) -> None:
        """
        Args:
            p2p: the own daemon.
            records: those that this peer knows.
            met: ids of the peers that it has met, whether they are there or not.
            trusted: ids of voters, and of those who were in a group with it.
            on_change: called when others have told what should be acted on at once.
        """
        self._p2p, self._records, self._on_change = p2p, records, on_change
        self._met, self._trusted = met, trusted
        self._own_id = str(p2p.peer_id)
        self._own_told: set[str] = set()  # ids of those who have our newest record
        self._calls: set[asyncio.Task[Any]] = set()
        now = time.monotonic()
        self._trusted_budget, self._others_budget = Budget(now), Budget(now)

    # A record, whose signature is checked.
    @rpc(Told, Raw, longest=(TOLD_BYTES, 256), seconds=ANSWER_SECONDS, calls=5, urgent=True)
    async def rpc_tell(self, request: Told, caller: str) -> Raw:
        """Take a record, and pass it on if that is wanted and it is news."""
        for record in self._take([request.data]):
            if request.urgent and self._may_pass_on(record):
                self._begin(self._pass_on(record, {*request.names, short_name(caller), record.name}))
        return Raw()

    # Members ask once a second or more rarely.
    @rpc(Request, Answer, longest=(32_000, REPLY_BYTES), seconds=ANSWER_SECONDS, calls=50)
    async def rpc_records(self, request: Request, caller: str) -> Answer:
        """Take the caller's own record, and give those that it lacks or knows much less freshly."""
        del caller
        self._take([request.own] if request.own else [])
        return self._answer_to(request)

    async def tell(self, record: SignedRecord, *, urgent: bool) -> None:
        """Push our own record, until most who are there have it, or for a moment.

        ``urgent``: let them pass it on, as it matters at once.
        """
        targets = await self._connected()
        if len(targets) > ALL_MAX:
            trusted = set(self._trusted())
            random.shuffle(targets)
            targets = sorted(targets, key=lambda peer: peer not in trusted)[:SOME]
        self._own_told.clear()
        message = Told(record.data, tuple(map(short_name, (self._own_id, *targets))), urgent)
        calls = [self._begin(self._tell(peer, message, self._own_told)) for peer in targets]
        if calls:
            await asyncio.wait(calls, timeout=PATIENCE_SECONDS)

    async def begin(self) -> None:
        """Ask those that were met already for all that they know; who is gone holds up nobody for long."""
        await self._ask_all(self._met_others()[:MET_MAX], FIRST_AGAIN_MAX)

    async def pull(self) -> None:
        """Ask a few others now: some that were met, some that are known, and else any who are connected."""
        met, known, connected = await self._choices()
        choices = (met, HALF), (known, HALF), (connected, 2 * HALF)
        asked = dict.fromkeys(
            peer for some, most in choices for peer in random.sample(some, min(most, len(some)))
        )
        await self._ask_all(list(asked)[: 2 * HALF])

    async def pull_forever(self) -> None:
        """Ask regularly: now one that was met, now one that is known, and now and then anybody."""
        turn = 0
        while True:
            often = PULL_SECONDS + PULL_SECONDS_PER_PEER * len(self._records)
            await asyncio.sleep(min(often, PULL_SECONDS_MAX) * random.uniform(0.5, 1.5))
            with suppress(Exception):  # it is gone, or p2pd is about to be replaced
                met, known, connected = await self._choices()
                turn += 1
                choice = (known, met, known, connected)[turn % 4] or met or known or connected
                if choice:
                    await self.ask(random.choice(choice))

    async def partners(self) -> set[str]:
        """The peers to ask now: one that was met, and one that is known."""
        met, known, _ = await self._choices()
        return {random.choice(choice) for choice in (met, known) if choice}

    async def ask(self, peer_id: str, again_max: int = AGAIN_MAX) -> None:
        """Take from ``peer_id`` what this peer lacks, and tell it our own record if it may lack that.

        Raises:
            CallError: it does not answer, or with nonsense.
        """
        for _ in range(again_max):
            own = self._records.of(self._own_id)
            lacks = own is not None and peer_id not in self._own_told
            request = Request(own.data if own and lacks else b"", {r.name: r.expires for r in self._records})
            answer = await self._p2p.call(peer_id, Gossip.rpc_records, request)
            if own is self._records.of(self._own_id):
                self._own_told.add(peer_id)
            if not self._take(answer.records) or not answer.more:
                break

    def _take(self, told: Iterable[bytes]) -> list[SignedRecord]:
        news = self._records.take(told)
        if any(record.changes(before) for record, before in news):
            self._on_change()
        return [record for record, _ in news]

    def _answer_to(self, asked: Request) -> Answer:
        """What there is room for; to one that knows too many already first what those say now.

        Where they are more than each tells of itself, a record is not sent again for being a little newer.
        """
        stale = min(PULL_SECONDS_PER_PEER * max(0, len(asked.known) - ALL_MAX), PULL_SECONDS_MAX)
        news = [each for each in self._records if each.expires > asked.known.get(each.name, 0.0) + stale]
        random.shuffle(news)  # whoever lacks more is told the rest by others
        if len(asked.known) >= RECORDS_MAX:
            news.sort(key=lambda each: each.name not in asked.known)
        room, some = REPLY_BYTES - 64, []
        for each in news:
            room -= len(each.data) + 5
            if room < 0:
                break
            some.append(each.data)
        return Answer(tuple(some), len(some) < len(news))

    async def _pass_on(self, record: SignedRecord, told: set[bytes]) -> None:
        try:
            connected = await self._connected()
        except (OSError, EOFError):  # p2pd is about to be replaced
            return
        targets = [peer for peer in connected if short_name(peer) not in told]
        targets = random.sample(targets, min(PASSED_ON, len(targets)))
        message = Told(record.data, (*told, *map(short_name, targets)), urgent=True)
        await asyncio.gather(*(self._tell(peer, message) for peer in targets))

    async def _tell(self, peer_id: str, message: Told, reached: set[str] | None = None) -> None:
        """``reached`` takes note of it, unless another message has been sent since then."""
        own = self._records.of(self._own_id)
        with suppress(CallError):  # it pulls what it misses
            await self._p2p.call(peer_id, Gossip.rpc_tell, message)
            if reached is not None and own is self._records.of(self._own_id):
                reached.add(peer_id)

    def _may_pass_on(self, record: SignedRecord) -> bool:
        now = time.monotonic()
        if record.peer_id in self._trusted():
            return self._trusted_budget.take_if_left(1.0, TRUSTED_RATE, TRUSTED_AT_ONCE, now)
        return self._others_budget.take_if_left(1.0, OTHERS_RATE, OTHERS_AT_ONCE, now)

    async def _choices(self) -> tuple[list[str], list[str], list[str]]:
        """Those that were met (who are connected, if any are), those that are known, and all connected."""
        connected = {str(peer.peer_id) for peer in await self._p2p.list_peers()} - {self._own_id}
        met = self._met_others()
        known = [each.peer_id for each in self._records if each.peer_id in connected]
        return [peer for peer in met if peer in connected] or met, known, sorted(connected)

    async def _connected(self) -> list[str]:
        """The peers with a known record."""
        connected = [str(peer.peer_id) for peer in await self._p2p.list_peers()]
        return [peer for peer in connected if peer != self._own_id and self._records.of(peer) is not None]

    def _met_others(self) -> list[str]:
        return [peer for peer in dict.fromkeys(self._met()) if peer != self._own_id]

    async def _ask_all(self, peers: Collection[str], again_max: int = AGAIN_MAX) -> None:
        """Wait a moment for all, then longer for one if none has answered."""
        late = {self._begin(self._ask_if_there(peer, again_max)) for peer in peers}
        done, patience, until = set[asyncio.Task[bool]](), PATIENCE_SECONDS, asyncio.ALL_COMPLETED
        while late and not any(call.result() for call in done):
            done, late = await asyncio.wait(late, timeout=patience, return_when=until)
            if not done and until == asyncio.FIRST_COMPLETED:
                break
            patience, until = FIRST_ANSWER_SECONDS, asyncio.FIRST_COMPLETED

    async def _ask_if_there(self, peer_id: str, again_max: int) -> bool:
        try:
            await self.ask(peer_id, again_max)
        except CallError:  # others are asked, too
            return False
        return True

    def _begin(self, call: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """``call`` in a task that asyncio does not forget."""
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task
