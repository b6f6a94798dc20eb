import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from dupt_swarm.replica.aggregation import keep_norms, screen_norms, screen_part

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "weight", "expected"),
    [
        ([1.0, -2.0], 1.0, ""),
        ([1.0, -2.0], 100.0, ""),
        ([0.0, 0.0], 5e-324, ""),
        ([3e38, 3e38], 1.0, ""),
        ([1.0], math.nextafter(100.0, INF), "weight"),
        ([1.0], 1e12, "weight"),
        ([1.0], 0.0, "weight"),
        ([1.0], -1.0, "weight"),
        ([1.0], NAN, "weight"),
        ([1.0], INF, "weight"),
        ([1.0, NAN], 1.0, "not_finite"),
        ([INF, 1.0], 1.0, "not_finite"),
        ([INF, -INF], 1.0, "not_finite"),
        ([NAN], NAN, "weight"),
    ],
)
def test_screening(values, weight, expected) -> None:
    """A part with an impossible weight or a number that is not finite is named, others pass."""
    assert screen_part(torch.tensor(values), weight, 100.0) == expected


@pytest.mark.parametrize(
    ("norms", "expected"),
    [
        ([1.0], [True]),
        ([1.0, 1e9], [True, True]),
        ([1.0, 1.0, 10.0], [True, True, True]),
        ([1.0, 1.0, 10.001], [True, True, False]),
        ([1e9, 1.0, 2.0], [False, True, True]),
        ([1.0, 2.0, 3.0, 1e6], [True, True, True, False]),
        ([0.0, 0.0, 5.0], [True, True, True]),
        ([0.0, 1.0, 1.0], [True, True, True]),
        ([0.0, 0.0, 0.0], [True, True, True]),
        ([3e38, 3e38, 3e38], [True, True, True]),
    ],
)
def test_norms(norms, expected) -> None:
    """Parts far above the median norm are left out, if there are at least three to compare."""
    parts = [torch.tensor([0.0, norm]) for norm in norms]
    assert screen_norms(parts, [1.0] * len(parts), 10.0)[0] == expected


@pytest.mark.parametrize(
    ("usual", "expected"),
    [(0.0, [True, True, False]), (0.5, [True, True, True]), (0.49, [True, True, False])],
)
def test_where_most_are_zero(usual, expected) -> None:
    """The usual norm says how long the others' may be, that nobody hides what is far longer among zeros."""
    parts = [torch.tensor([norm]) for norm in (0.0, 0.0, 5.0)]
    assert screen_norms(parts, [1.0] * 3, 10.0, usual) == (expected, 0.0)


def test_a_peer_that_did_more_may_have_gone_farther() -> None:
    """A norm larger in proportion to the tokens is sound; beyond that it is left out."""
    parts = [torch.tensor([norm]) for norm in (1.0, 1.0, 39.0)]
    assert screen_norms(parts, [64.0, 64.0, 256.0], 10.0)[0] == [True, True, True]
    assert screen_norms(parts, [64.0, 64.0, 128.0], 10.0)[0] == [True, True, False]
    assert screen_norms(parts, [64.0, 64.0, 1.0], 40.0)[0] == [True, True, True]  # nor need it be shorter
    assert screen_norms(parts[1:], [64.0, 64.0], 1.5)[0] == [True, True]


def test_two_that_are_asked_outvote_nobody() -> None:
    """However many others there are."""
    norms = [1.0, 1.0, 1e6, 1e6, 1e6]
    assert keep_norms(norms, [1.0] * 5, 10.0, judges=[0, 1]) == [True] * 5
    assert keep_norms(norms, [1.0] * 5, 10.0, judges=[0, 1, 2]) == [True, True, False, False, False]


@given(st.lists(st.floats(0, 2.0**100, width=32), min_size=1, max_size=7), st.floats(1.001, 100))
def test_somebody_is_always_kept(norms, ratio) -> None:
    """Whatever the norms are, at least half of the parts stay."""
    parts = [torch.tensor([norm]) for norm in norms]
    assert 2 * sum(screen_norms(parts, [1.0] * len(parts), ratio)[0]) >= len(parts)


@given(
    st_numpy.arrays(np.float32, st.integers(1, 3000), elements=st.floats(-1, 1, width=16)),
    st.integers(-126, 127),
)
def test_a_norm_of_any_size(values: np.ndarray, exponent: int) -> None:
    """A part three times as large as two others stays at a ratio of 3.01, and goes at 2.99."""
    part = torch.from_numpy(values) * 2.0 ** (exponent - 2)
    exact = math.sqrt(math.fsum(float(value) ** 2 for value in part))
    if exact < 2.0**-110 or not float(part.abs().max()) < 2.0**125:
        return  # three times as much would be rounded, or infinite
    parts, weights = [part, part * 3, part.clone()], [1.0] * 3
    assert screen_norms(parts, weights, 3.01)[0] == [True, True, True]
    assert screen_norms(parts, weights, 2.99)[0] == [True, False, True]
