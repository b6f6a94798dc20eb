"""ε of many contributions, beside what is exact for Gaussian noise."""

import math
import re
import sys
from collections import Counter
from statistics import NormalDist

import pytest

from dupt_swarm.errors import UsageError, install
from dupt_swarm.privacy.accountant import epsilon


def exact(made: dict[float, int], delta: float) -> float:
    """ε by the exact formula, with two corpora 2 apart where the norm clipped to is 1.

    Independent of Opacus: many Gaussian mechanisms are one, whose squares of distance ÷ noise are summed
    (Dong et al. 2019, "Gaussian differential privacy"), and δ(ε) of one is known (Balle and Wang 2018,
    arXiv 1805.06530, theorem 8).
    """
    distance = math.sqrt(sum(count * (2.0 / noise) ** 2 for noise, count in made.items()))
    cdf = NormalDist().cdf

    def delta_of(found: float) -> float:
        return cdf(distance / 2 - found / distance) - math.exp(found) * cdf(-distance / 2 - found / distance)

    low, high = 0.0, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", [1e-5, 1e-3, 1e-8])
@pytest.mark.parametrize(
    "made", [{1.0: 1}, {10.0: 1}, {10.0: 30}, {10.0: 1000}, {100.0: 5}, {5.0: 3, 20.0: 50}, {0.5: 2}], ids=str
)
def test_epsilon_bounds_the_exact_one_closely(made: dict[float, int], delta: float) -> None:
    """It is never less than what is exact, and little more."""
    true = exact(made, delta)
    found = epsilon(Counter(made), delta)
    assert true <= found <= 1.35 * true + 0.01


def test_epsilon_grows_with_each_contribution() -> None:
    """Also with one that has more noise than those before."""
    counts = [{}, {2.0: 1}, {2.0: 2}, {2.0: 2, 50.0: 1}]
    found = [epsilon(Counter(made), 1e-5) for made in counts]
    assert found[0] == 0.0
    assert sorted(set(found)) == found


def test_a_missing_accountant_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts by guesses."""
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(UsageError, match=re.escape(install("private"))):
        epsilon(Counter({1.0: 1}), 1e-5)
