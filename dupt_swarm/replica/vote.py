"""Whether a member should vote for the state that a round leads to, by text that nobody else has seen.

A rule of aggregation sees numbers only, and contributions of which each is plausible may still lead to a
worse model.
"""

from __future__ import annotations

import math

# Members' texts differ, and so does what a good round does for each.
MARGIN = 0.01


def accepts(before: float, after: float) -> bool:
    """Whether a round may lead from a state with the loss ``before`` to one with the loss ``after``.

    Both in nats per token, of the same held-out text.
    """
    return math.isfinite(after) and after <= before * (1 + MARGIN)
