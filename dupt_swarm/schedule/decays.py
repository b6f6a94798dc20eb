"""What becomes of a learning rate after its peak, bit-identical on every machine.

Each: how many updates ago the decay began, with which update it did, and with which it ends; gives what is
left, from 1 to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dupt_swarm.schedule.reproducible import cosine_of_pi_times

Decay = Callable[[float, int, int], float]


def cosine(since: float, begin: int, end: int) -> float:
    """Half a cosine (Loshchilov and Hutter 2016, arXiv:1608.03983, equation 5)."""
    return 0.5 * (1 + cosine_of_pi_times(_done(since, begin, end)))


def linear(since: float, begin: int, end: int) -> float:
    """A straight line; after a constant rate that is warm-up, stable, decay (arXiv:2404.06395, section 4)."""
    return 1 - _done(since, begin, end)


def inverse_sqrt(since: float, begin: int, _end: int) -> float:
    """√(begin ÷ update), which never ends (Vaswani et al. 2017, section 5.3)."""
    return math.sqrt((begin + 1) / (begin + 1 + since))  # IEEE 754 rounds square roots exactly


def _done(since: float, begin: int, end: int) -> float:
    return min(1.0, since / (end - begin))


DECAYS: dict[str, Decay] = {"cosine": cosine, "linear": linear, "inverse_sqrt": inverse_sqrt}
