import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from dupt_swarm.replica.aggregation import sum_of_squares, weighted_mean
from dupt_swarm.replica.aggregation.sums import products

SLICE, BITS = 1 << 15, 19


@pytest.fixture
def threads() -> Iterator[None]:
    """However many threads a test sets, the next one has as many as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@given(st.data(), st.integers(1, 6))
def test_weighted_mean(data, peers: int) -> None:
    """The mean is Σ w·x / Σ w of exact arithmetic, to the rounding of fp32."""
    floats = st.floats(-1e6, 1e6, width=32)
    rows = data.draw(st.lists(st.lists(floats, min_size=4, max_size=4), min_size=peers, max_size=peers))
    weights = data.draw(st.lists(st.floats(1, 1e9), min_size=peers, max_size=peers))
    exact = np.average(np.array(rows, np.float64), axis=0, weights=weights)
    actual = weighted_mean([torch.tensor(row) for row in rows], weights).double().numpy()
    largest = np.abs(np.array(rows)).max(axis=0)
    assert (np.abs(actual - exact) <= (peers + 1) * 2.0**-23 * largest + 1e-44).all()


@given(st.data(), st.integers(1, 6), st.integers(1, 70))
def test_the_mean_has_the_bits_of_separate_operations(data, peers: int, numel: int) -> None:
    """Each product is rounded to fp32, then each sum, in order: the state digest depends on all of them."""
    floats = st_numpy.arrays(np.float32, (peers, numel), elements=st.floats(width=32, allow_nan=False))
    rows = data.draw(floats)
    weights = data.draw(st.lists(st.floats(5e-324, 1e12), min_size=peers, max_size=peers))
    total = math.fsum(weights)
    with np.errstate(all="ignore"):
        expected = rows[0] * np.float32(weights[0] / total)
        for row, weight in zip(rows[1:], weights[1:], strict=True):
            expected = expected + row * np.float32(weight / total)
    actual = weighted_mean(list(torch.from_numpy(rows.copy())), weights).numpy()
    finite = ~np.isnan(expected)  # of which there are many kinds
    assert actual[finite].tobytes() == expected[finite].tobytes()
    assert np.isnan(actual[~finite]).all()


def test_mean_of_one_is_itself() -> None:
    """A single part is its own mean, bit for bit."""
    part = torch.linspace(-3, 7, 1001)
    assert torch.equal(weighted_mean([part.clone()], [123.0]), part)


def test_the_mean_takes_no_memory() -> None:
    """It is where the first part was."""
    parts = [torch.ones(3), torch.full((3,), 4.0)]
    mean = weighted_mean(parts, [2.0, 1.0])
    assert mean.tolist() == [2.0, 2.0, 2.0]
    assert mean.data_ptr() == parts[0].data_ptr()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 64, 1001])
def test_sum_of_squares(length) -> None:
    """It is the sum, of whatever length, and added in halves: the same additions everywhere."""
    part = torch.randn(length, generator=torch.Generator().manual_seed(length)) * 1e20
    assert sum_of_squares(part) == pytest.approx(math.fsum(float(x) ** 2 for x in part), rel=1e-12)
    if length == 3:
        a, b, c = (float(x) ** 2 for x in part)
        assert sum_of_squares(part) == (a + c) + b


def cut(vectors: np.ndarray, size: int) -> list[list[torch.Tensor]]:
    """The first parts of all rows, then the second ones, …"""
    parts = [torch.split(torch.from_numpy(row.copy()), size) for row in vectors]
    return [list(alike) for alike in zip(*parts, strict=True)]


def whole_numbers(vectors: np.ndarray, size: int) -> np.ndarray:
    """The products in integers, of numbers rounded as `products` says, and the slices' sums in order."""
    total = np.zeros((len(vectors),) * 2)
    for start in range(0, vectors.shape[1], size):
        part = vectors[:, start : start + size].astype(np.float64)
        exponents = np.frexp(np.abs(part).max(axis=1))[1]
        rounded = np.rint(np.ldexp(part, BITS - exponents[:, None])).astype(np.int64)
        sums = np.zeros_like(total)
        for first in range(0, size, SLICE):
            piece = rounded[:, first : first + SLICE]
            sums += (piece @ piece.T).astype(np.float64)
        total += np.ldexp(sums, exponents + exponents[:, None] - 2 * BITS)
    return total


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("size", [1000, 70_000, 1 << 18])
def test_products_have_the_bits_of_whole_numbers(size) -> None:
    """However many threads multiply, the bits are those of integer arithmetic, which has no order."""
    vectors = np.random.default_rng(size).standard_normal((5, 300_000)).astype(np.float32)
    vectors[1] *= np.float32(1e-30)
    vectors[2, ::3] *= np.float32(1e6)
    expected = whole_numbers(vectors, size).tolist()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert products(cut(vectors, size), 5) == expected


def test_the_scale_of_products_is_exact(monkeypatch) -> None:
    """Parts of any magnitude have it, and no library's powers: some of `torch.ldexp` are fp32 numbers."""
    monkeypatch.setattr(torch, "ldexp", lambda values, exponents: values * 2.0 ** exponents.float())
    vectors = np.random.default_rng(3).standard_normal((6, 100)).astype(np.float32)
    vectors *= np.array([[1e37], [1e-37], [1e-44], [1.0], [3e20], [0.0]], np.float32)
    assert products(cut(vectors, 50), 6) == whole_numbers(vectors, 50).tolist()


def test_products_do_not_depend_on_the_order_of_vectors() -> None:
    """The same two vectors have the same product in any place."""
    vectors = np.random.default_rng(1).standard_normal((9, 50_001)).astype(np.float32)
    found = np.array(products(cut(vectors, 20_000), 9))
    order = np.random.default_rng(2).permutation(9)
    assert np.array_equal(np.array(products(cut(vectors[order], 20_000), 9)), found[np.ix_(order, order)])


@given(
    st_numpy.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 200)),
        elements=st.floats(-(2.0**100), 2.0**100, width=32),
    )
)
def test_products_are_products(vectors: np.ndarray) -> None:
    """They are those of exact arithmetic, within 2⁻¹⁰ of the product of the norms; of tiny values too."""
    exact = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    norms = np.sqrt(np.diag(exact))
    found = np.array(products(cut(vectors, 64), len(vectors)))
    assert (np.abs(found - exact) <= 2.0**-10 * np.outer(norms, norms) + 1e-70).all()


def test_what_one_large_value_hides_is_small() -> None:
    """Beside one large value all others of a part may vanish, and then they are a small part of its norm."""
    vector = np.full((1, 1 << 18), 2.0**-20, np.float32)
    vector[0, 0] = 1.0
    [[found]] = products(cut(vector, 1 << 18), 1)
    exact = float((vector.astype(np.float64) ** 2).sum())
    assert found == pytest.approx(exact, rel=2.0**-20)
