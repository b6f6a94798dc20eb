"""Which claims of others are not believed for a while, since nobody could make them good."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Claim = tuple[str, int]  # digest and tokens of a state that a peer says it holds

FIRST_SECONDS, LONGEST_SECONDS = 30.0, 1800.0
# From so many failed claims on, nothing that the peer says is believed.
TOLERATED = 3
FORGOTTEN_SECONDS = 3600.0


@dataclass(frozen=True)
class _Doubt:
    claim: Claim
    failures: int
    until: float

    @property
    def whole(self) -> bool:
        return self.failures >= TOLERATED


class Distrust:
    """For each peer its failed claims: each counts for twice as long as the one before.

    An honest peer claims another state after the next round, and is believed again at once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._doubts: dict[str, _Doubt] = {}

    def failed(self, peer_id: str, claim: Claim) -> None:
        """``peer_id`` made this claim, and the state could not be had, or is another."""
        now = self._clock()
        self._doubts = {
            other: doubt for other, doubt in self._doubts.items() if now < doubt.until + FORGOTTEN_SECONDS
        }
        before = self._doubts.get(peer_id)
        failures = 1 + (before.failures if before else 0)
        seconds = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 16), LONGEST_SECONDS)
        self._doubts[peer_id] = _Doubt(claim, failures, now + seconds)

    def applies(self, peer_id: str, claim: Claim) -> bool:
        """Whether ``peer_id`` is not to be believed when it makes this claim."""
        doubt = self._doubts.get(peer_id)
        return doubt is not None and self._clock() < doubt.until and (doubt.whole or doubt.claim == claim)
