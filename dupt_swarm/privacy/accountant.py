"""ε of all that an oracle has made for others to see, by Opacus' accountant (Yousefpour et al. 2021).

Two corpora may make contributions that lie at opposite ends of the ball, so what noise has to hide, the
*sensitivity*, is twice the norm to which they are clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dupt_swarm.errors import UsageError, install

SENSITIVITY = 2.0  # ÷ the norm that contributions are clipped to
# Rényi orders to choose the best bound from: less than a thousandth is lost for noise from 1e-3 to 1e4.
_ORDERS = [1.0 + 10.0 ** (exponent / 100) for exponent in range(-800, 601)]


@dataclass(frozen=True)
class PrivacySpent:
    """What an oracle's contributions may tell of its corpus.

    For any two corpora, and anything that may be seen of all contributions, one makes it at most e^ε times as
    likely as the other, but for a probability of δ.

    Attributes:
        epsilon: ε.
        delta: δ.
        contributions: how many were made.
        limit: of ε; None: none.
        exhausted: whether one more contribution would exceed it.
    """

    epsilon: float
    delta: float
    contributions: int
    limit: float | None = None
    exhausted: bool = False


def load_accountant() -> Any:
    """Opacus' class; it takes seconds to import, so only who wants privacy does.

    Raises:
        UsageError: Opacus is not installed.
    """
    try:
        from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UsageError(
            f"privacy is accounted for by Opacus; {install('private')}", setting="private"
        ) from error
    return RDPAccountant


def epsilon(made: Mapping[float, int], delta: float) -> float:
    """An upper bound of ε, by Rényi differential privacy (Mironov 2017), whoever saw all contributions.

    Args:
        made: how many contributions with each noise multiplier (noise ÷ the norm clipped to).
        delta: δ.

    Raises:
        UsageError: Opacus is not installed.
    """
    accountant = load_accountant()()
    # The corpus is in every contribution: nothing is sampled.
    accountant.history = [(noise / SENSITIVITY, 1.0, count) for noise, count in made.items() if count]
    return max(0.0, float(accountant.get_epsilon(delta, _ORDERS)))
