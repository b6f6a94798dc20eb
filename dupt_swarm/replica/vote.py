"""The vote on a round: each member measures the state that it leads to, and most of them must accept it.

A rule of aggregation sees numbers only, and contributions of which each is plausible may still lead to a
worse model. Members have texts that nobody else has seen, and can tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def accepts(before: Sequence[float], after: Sequence[float], margin: float) -> bool:
    """Whether a member accepts a state, by the losses of some held-out blocks of its own.

    Args:
        before: the block's losses with the state before the round, nats per token.
        after: of the same blocks with the state after it.
        margin: how much larger the mean loss may be, ÷ that before: members' texts differ, and so does
            what a good round does for each.
    """
    usual, found = statistics.fmean(before), statistics.fmean(after)
    return math.isfinite(found) and found <= usual * (1 + margin)


def stands(accepted: int, members: int) -> bool:
    """Whether a round stands that so many of its members accept: more than two thirds of them."""
    return 3 * accepted > 2 * members
