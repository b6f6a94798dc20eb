"""Which peers may call this one, and how much each may ask; strangers share a limit besides."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from hivemind.p2p import PeerID

from dupt_swarm.network.p2p.rpc import CallError, Refusal

# Accounts of peers that have nothing open are forgotten beyond so many, those unused for longest first.
ACCOUNTS_MAX = 1024


Kind = Literal["call", "stream"]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Allowance:
    """What one account may use.

    Attributes:
        calls: per second; opening a stream is one, and a call that takes long counts as several.
        calls_at_once: after a pause.
        bytes: received from it and answered to it, per second.
        bytes_at_once: after a pause.
        open_calls: being answered at a time.
        open_streams: at a time.
    """

    calls: float
    calls_at_once: float
    bytes: float
    bytes_at_once: float
    open_calls: int
    open_streams: int


# A member of a swarm of 64 makes some 10 calls a second, and 200 within a second as a round ends; a joiner
# opens a stream for each one to four chunks of the state, as fast as its link is.
MEMBER = Allowance(200, 4000, 1 << 30, 2 << 30, 64, 64)
STRANGER = Allowance(200, 2000, 128 << 20, 512 << 20, 32, 8)
STRANGERS = Allowance(1000, 8000, 512 << 20, 2 << 30, 192, 192)


@dataclass
class Budget:
    """A token bucket that does not wait."""

    filled: float
    used: float = 0.0

    def take(self, amount: float, rate: float, at_once: float, now: float) -> bool:
        """Whether so much is left; otherwise all that is left is used, as what is refused has cost us too."""
        self._refill(rate, now)
        wanted = self.used + amount
        self.used = max(self.used, min(wanted, at_once))
        return wanted <= at_once

    def charge(self, amount: float, rate: float, now: float) -> None:
        """Use so much, also if it is more than is left: nothing is left then until that is made good."""
        self._refill(rate, now)
        self.used += amount

    def _refill(self, rate: float, now: float) -> None:
        self.used = max(0.0, self.used - rate * (now - self.filled))
        self.filled = now

    def take_if_left(self, amount: float, rate: float, at_once: float, now: float) -> bool:
        """As `take`, but what is refused costs nothing: of what this peer itself wants to do."""
        before = self.filled, self.used
        taken = self.take(amount, rate, at_once, now)
        if not taken:
            self.filled, self.used = before
        return taken


@dataclass
class Account:
    """What a peer, or all strangers together, have used."""

    calls: Budget
    bytes: Budget
    open: Counter[Kind] = field(default_factory=Counter)


class PeerLimits:
    """Keeps an account of each peer, by its id, and one of all that are no members together.

    Members come first: whatever strangers have open, and however many they are, it is the strangers' share.
    When half of that is taken, a stranger has one more open only if it has none: a few do not take it all.

    Attributes:
        members: ids of the peers whose records are known.
        trusted: ids of voters, and of those who were in a group with this peer: keys alone are not enough.
        invited: ids of those with an invitation, where the swarm has an organiser: they count as members, and
            are trusted.
        mates: ids of those that a round is being ended with: what they get goes first.
    """

    def __init__(self, refused: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        """``refused`` counts what is too much, see `REFUSED_MESSAGES`; ``clock`` is for tests."""
        self.members: Collection[str] = frozenset()
        self.trusted: Collection[str] = frozenset()
        self.invited: Container[str] = frozenset()
        self.mates: Collection[str] = frozenset()
        self._refused, self._clock = refused, clock
        self._strangers = self._new()
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    @contextmanager
    def open(self, peer: str, kind: Kind) -> Iterator[None]:
        """A ``call`` or a ``stream`` of ``peer``, while the block lasts.

        Raises:
            CallError: too many are open, or were begun.
        """
        accounts = self._accounts_of(peer)
        own = accounts[0][0]
        for account, allowance, whose in accounts:
            most = allowance.open_calls if kind == "call" else allowance.open_streams
            if account.open[kind] >= most:
                raise self._refusal(whose or "open", f"more than {most} at once are open")
            if whose and account.open[kind] >= most // 2 and own.open[kind]:
                raise self._refusal(whose, "many at once are open, and one of them is yours")
        self.count(peer, calls=1)
        for account, _, _ in accounts:
            account.open[kind] += 1
        try:
            yield
        finally:
            for account, _, _ in accounts:
                account.open[kind] -= 1

    def count(self, peer: str, *, calls: int = 0, size: int = 0) -> None:
        """Count calls and bytes of ``peer``.

        Raises:
            CallError: they are more than are left.
        """
        now = self._clock()
        for account, allowance, whose in self._accounts_of(peer):
            if not account.calls.take(calls, allowance.calls, allowance.calls_at_once, now):
                raise self._refusal(whose or "rate", "too many calls")
            if not account.bytes.take(size, allowance.bytes, allowance.bytes_at_once, now):
                raise self._refusal(whose or "rate", "too many bytes")

    def charge(self, peer: str, size: int) -> None:
        """So many bytes are sent to ``peer``, which has asked for them."""
        now = self._clock()
        for account, allowance, _ in self._accounts_of(peer):
            account.bytes.charge(size, allowance.bytes, now)

    def is_member(self, peer: str) -> bool:
        """Whether the record of ``peer`` is known, or it is invited."""
        return peer in self.members or peer in self.invited

    def is_trusted(self, peer: str) -> bool:
        """Whether ``peer`` has done something for the swarm, or is invited; anybody may have a record."""
        return peer in self.trusted or peer in self.invited

    def _accounts_of(self, peer: str) -> list[tuple[Account, Allowance, str]]:
        """Those that ``peer`` uses, each with its allowance, and the word for metrics where it is common."""
        account = self._accounts.get(peer) or self._new()
        self._accounts[peer] = account
        self._accounts.move_to_end(peer)
        if len(self._accounts) > ACCOUNTS_MAX:
            self._forget(peer)
        if self.is_member(peer):
            return [(account, MEMBER, "")]
        return [(account, STRANGER, ""), (self._strangers, STRANGERS, "strangers")]

    def _forget(self, but: str) -> None:
        """Drop the account unused for longest, of those with nothing open; not that of ``but``."""
        accounts = self._accounts.items()
        oldest = next((peer for peer, each in accounts if not each.open.total() and peer != but), None)
        if oldest is not None:
            del self._accounts[oldest]

    def _refusal(self, reason: str, detail: str) -> CallError:
        self._refused[reason] += 1
        return CallError(Refusal.LATER, f"{detail}; try again later")

    def _new(self) -> Account:
        now = self._clock()
        return Account(Budget(now), Budget(now))


class Admission:
    """What the gate asks of every kind of admission. This one is an open swarm's: everybody is admitted.

    Attributes:
        credential: this peer's, for its record; empty where none is needed.
    """

    credential = ""

    def objection(self, peer_id: str) -> str:
        """Why this peer may not call, or have a record; empty if it may."""
        del peer_id
        return ""

    def admit(self, peer_id: str, credential: str) -> str:
        """Take note of what a peer shows; why it is not admitted, empty if it is."""
        del peer_id, credential
        return ""

    async def call(self, peer: PeerID, attempt: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call a method of ``peer`` by ``attempt``, after what has to come before."""
        del peer
        return await attempt()

    def refused_by(self, peer: PeerID) -> None:
        """A stream of ``peer`` has failed, perhaps because it does not know us any more."""

    async def introduce(self, peer_ids: Sequence[str]) -> None:
        """Come to know the first peers.

        Raises:
            AdmissionError: they do not admit this one.
        """

    async def keep_forever(self) -> None:
        """Pass on what others have to know."""


OPEN = Admission()
