"""Which peers come to rounds, so that rounds wait for them, and whose word is not believed for a while.

Not waited for is who never comes, or comes and brings nothing.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

# So many rounds in a row is a newcomer waited for in vain; longer whoever was in a group with us before.
TOLERATED, TOLERATED_OF_MATES = 3, 8
# Newcomers are cheap to invent: so many rounds in a row may all of them together spoil.
TOLERATED_OF_NEWCOMERS = 6
# Then a round waits for everybody once more; twice as long later when that was in vain.
FIRST_SECONDS, LONGEST_SECONDS = 60.0, 1800.0
KEPT_MAX = 4096


class Attendance:
    """Remembers who came to the rounds to which it was expected.

    A group is complete as soon as all are there that are waited for; a record of somebody who never comes
    would cost each round its whole time for finding the group, and one who comes without a contribution the
    time for collecting it. Both count alike. A peer that was in a round with us is waited for again.
    """

    def __init__(self, refused: Counter[str], clock: Callable[[], float] = time.monotonic) -> None:
        """``refused`` counts under ``absent`` those who were not waited for."""
        self._refused, self._clock = refused, clock
        self._missed: OrderedDict[str, int] = OrderedDict()
        self._mates: OrderedDict[str, int] = OrderedDict()
        self._spoilt = 0  # rounds in a row by newcomers
        self._pause, self._next_trial = FIRST_SECONDS, 0.0

    @property
    def mates(self) -> Collection[str]:
        """Peers that were in a group with this one."""
        return self._mates.keys()

    def expects(self, peer: str) -> bool:
        """Whether the next round waits for it, if it is there."""
        return self.trusts(peer) or self._on_trial

    def ended(self, companions: Collection[str], came: Collection[str]) -> None:
        """A round has ended: ``companions`` were there at its beginning, ``came`` brought contributions."""
        expected = [peer for peer in companions if self.expects(peer)]
        absent = [peer for peer in companions if peer not in came and peer not in expected]
        if absent:
            self._refused["absent"] += len(absent)
            self._next_trial = self._next_trial or self._clock() + self._pause
        doubtful = [peer for peer in expected if not self.trusts(peer)]
        newcomers = [peer for peer in expected if peer not in self._mates]
        if not set(came).isdisjoint(doubtful):
            self._pause, self._next_trial = FIRST_SECONDS, 0.0
        elif doubtful:
            self._pause = min(2 * self._pause, LONGEST_SECONDS)
            self._next_trial = self._clock() + self._pause
        if not set(came).isdisjoint(newcomers):
            self._spoilt = 0
        elif newcomers:
            self._spoilt += 1
        for peer in expected:
            if peer not in came:
                _put(self._missed, peer, self._missed.get(peer, 0) + 1)
        for peer in came:
            # One by one, or coming now and then would have it waited for in all the rounds between.
            if missed := self._missed.pop(peer, 0):
                _put(self._missed, peer, min(missed, self._tolerated(peer)) - 1)
            _put(self._mates, peer, 0)

    @property
    def _on_trial(self) -> bool:
        """Whether the next round waits for everybody once more."""
        return self._clock() >= self._next_trial > 0

    def trusts(self, peer: str) -> bool:
        """Whether it may be expected to come."""
        spoilt = peer not in self._mates and self._spoilt >= TOLERATED_OF_NEWCOMERS
        missed = self._missed.get(peer, 0)
        return not spoilt and missed < self._tolerated(peer)

    def _tolerated(self, peer: str) -> int:
        return TOLERATED_OF_MATES if peer in self._mates else TOLERATED


def _put(kept: OrderedDict[str, int], peer: str, value: int) -> None:
    kept[peer] = value
    kept.move_to_end(peer)
    if len(kept) > KEPT_MAX:
        kept.popitem(last=False)


Claim = tuple[str, int]  # digest and tokens of a state that a peer says it holds

DOUBT_SECONDS, LONGEST_DOUBT_SECONDS = 30.0, 1800.0
# From so many false claims on, nothing that the peer says is believed.
CLAIMS_MAX = 3
FORGOTTEN_SECONDS = 3600.0


@dataclass(frozen=True)
class _Doubt:
    claim: Claim
    failures: int
    until: float

    @property
    def whole(self) -> bool:
        return self.failures >= CLAIMS_MAX


class Distrust:
    """For each peer its false claims: each counts for twice as long as the one before.

    An honest peer claims another state after the next round, and is believed again at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._doubts: dict[str, _Doubt] = {}

    def failed(self, peer_id: str, claim: Claim) -> None:
        """``peer_id`` made this claim, and the state is another."""
        now = self._clock()
        self._doubts = {
            other: doubt for other, doubt in self._doubts.items() if now < doubt.until + FORGOTTEN_SECONDS
        }
        before = self._doubts.get(peer_id)
        failures = 1 + (before.failures if before else 0)
        seconds = min(DOUBT_SECONDS * 2.0 ** min(failures - 1, 16), LONGEST_DOUBT_SECONDS)
        self._doubts[peer_id] = _Doubt(claim, failures, now + seconds)

    def applies(self, peer_id: str, claim: Claim) -> bool:
        """Whether ``peer_id`` is not to be believed when it makes this claim."""
        doubt = self._doubts.get(peer_id)
        return doubt is not None and self._clock() < doubt.until and (doubt.whole or doubt.claim == claim)
