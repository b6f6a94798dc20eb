"""What one all-reduce did, as one member saw it, and what that says of the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dupt_swarm.network.averaging.receipt import Receipt
from dupt_swarm.replica.aggregation import is_plausible


@dataclass
class Tally:
    """Of one run of `ScreeningRunner`; peers are named by their ids.

    Attributes:
        me: this member.
        shares: by reducer, the numbers of the parts that it averages.
        weights: tokens × values of every averaged part received, for the mean of the tokens.
        values: how many averaged values were received.
        squares: of each averaged part by its number: the squared norms of our contribution and the average.
        receipts: by reducer, of each share that arrived whole.
        lost_reducers: those whose share did not, or not as they have signed.
        bad_reducers: those of them who did return something, and no honest one returns that.
        late_senders: those without whose contributions, or parts of them, we went on, as they did not come.
        awaited_senders: those for whom our share still waited at the end, and for long.
        rejected: contributions left out here, by reason.
    """

    me: str
    shares: Mapping[str, Sequence[int]]
    weights: list[float] = field(default_factory=list)
    values: int = 0
    squares: dict[int, tuple[float, float]] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    lost_reducers: set[str] = field(default_factory=set)
    bad_reducers: set[str] = field(default_factory=set)
    late_senders: set[str] = field(default_factory=set)
    awaited_senders: set[str] = field(default_factory=set)
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def tokens(self) -> int:
        """Tokens in the average: the mean over the values received, equal on all peers that got all."""
        return round(math.fsum(self.weights) / max(self.values, 1))

    @property
    def failed(self) -> frozenset[str]:
        """Those for whom the run has failed, if it has ended before the time was up."""
        return frozenset(self.lost_reducers - {self.me})

    @property
    def silent(self) -> frozenset[str]:
        """Those for whom it has failed if the time is up: for whom we still wait, if it is not most."""
        missing = self.shares.keys() - self.receipts.keys()
        reducers = missing if 2 * len(missing) <= len(self.shares) else set[str]()
        return frozenset((self.awaited_senders | reducers) - {self.me})

    def implausible(self, weight: float, limit: float, ratio: float) -> tuple[str, ...]:
        """The other reducers whose averages cannot be what they say, once all have arrived.

        Args:
            weight: our tokens.
            limit: the largest weight allowed.
            ratio: see `is_plausible`.
        """
        own, average = self._norms(self.me)
        known = average / own if own else 0.0
        norms = {peer_id: self._norms(peer_id) for peer_id in self.shares.keys() - {self.me}}
        return tuple(
            peer_id
            for peer_id, (own, average) in sorted(norms.items())
            if not is_plausible(average, own, weight, limit, ratio, known)
        )

    def _norms(self, reducer: str) -> tuple[float, float]:
        """Of our contribution to its share, and of what it has returned."""
        squares = [self.squares[number] for number in self.shares.get(reducer, ())]
        own, average = (math.sqrt(math.fsum(pair[which] for pair in squares)) for which in (0, 1))
        return own, average
