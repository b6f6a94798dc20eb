"""The rules of aggregation against plain formulas of NumPy, and what hostile contributions can do."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from dupt_swarm.manifest import Aggregation
from dupt_swarm.replica.aggregation import Bounded, Rule, build_rule, rules, sum_of_squares, sums
from dupt_swarm.replica.aggregation.rules import AGREEMENT, RULES, center


def rule(name: str, **table: float) -> Rule:
    return build_rule(Aggregation.model_validate({"rule": name, **table}))


def norm(vector: np.ndarray) -> float:
    return float(np.sqrt(sum_of_squares(torch.from_numpy(vector))))


def bounded(vectors: np.ndarray, weights: Sequence[float] | None = None, size: int = 1000) -> Bounded:
    """The rows as contributions in parts of ``size`` values."""

    def parts() -> Iterator[list[Tensor]]:
        for start in range(0, vectors.shape[1], size):
            yield [torch.from_numpy(row[start : start + size].copy()) for row in vectors]

    return Bounded.of(parts, [norm(row) for row in vectors], weights or [1.0] * len(vectors))


def average(
    found: Rule, vectors: np.ndarray, weights: Sequence[float] | None = None, size: int = 1000
) -> np.ndarray:
    return torch.cat(list(found.average(bounded(vectors, weights, size)))).numpy()


def draw(count: int, seed: int = 0, spread: float = 1.0, numel: int = 2500) -> np.ndarray:
    """Contributions that have a common direction of norm 1, and another of norm ``spread`` each."""
    values = np.random.default_rng(seed).standard_normal((1 + count, numel))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return (values[0] + spread * values[1:]).astype(np.float32)


def clipped(vectors: np.ndarray) -> np.ndarray:
    """The rows in fp64, none longer than their lower median."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    median = np.sort(norms)[(len(norms) - 1) // 2]
    return vectors * np.minimum(1, median / np.maximum(norms, 1e-300))[:, None]


def centered_clip(vectors: np.ndarray, radius: float, iterations: int) -> np.ndarray:
    """As the paper has it, on whole vectors."""
    center = vectors.mean(axis=0)
    for _ in range(iterations):
        away = vectors - center
        pulls = np.minimum(1, radius / np.maximum(np.linalg.norm(away, axis=1), 1e-300))
        center = center + (pulls @ away) / len(vectors)
    return center


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16])
def test_the_mean_is_of_clipped_vectors(count) -> None:
    """Each is clipped to the lower median of the norms, and weighs twice the median of weights at most."""
    vectors = draw(count) * np.linspace(0.5, 3, count)[:, None].astype(np.float32)
    weights = [10.0 + number for number in range(count - 1)] + [1000.0]
    limited = np.minimum(weights, 2 * np.sort(weights)[(count - 1) // 2])
    expected = np.average(clipped(vectors), axis=0, weights=limited)
    assert average(rule("mean"), vectors, weights) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_equal_norms_and_weights_give_the_plain_mean() -> None:
    """Where nothing exceeds a bound the bits are those of the weighted mean in fp32, in order."""
    signs = np.random.default_rng(3).choice([-1, 1], (3, 2500)).astype(np.float32)
    vectors = signs * draw(1)[0]
    shares = [np.float32(weight / 8) for weight in (3, 2, 3)]
    expected = vectors[0] * shares[0] + vectors[1] * shares[1]
    assert np.array_equal(average(rule("mean"), vectors, [3.0, 2.0, 3.0]), expected + vectors[2] * shares[2])


@pytest.mark.parametrize("count", [1, 2, 3, 8, 16])
@pytest.mark.parametrize(("radius", "iterations"), [(0.3, 1), (0.5, 20), (1.0, 5)])
def test_the_center_is_the_papers_formula(count, radius, iterations) -> None:
    """Coefficients from products of vectors give what the iteration on whole vectors gives."""
    vectors = draw(count, spread=2.0)
    vectors[count // 2 :] *= -3
    inputs = clipped(vectors)
    median = np.linalg.norm(inputs, axis=1).max()
    expected = centered_clip(inputs, radius * median, iterations)
    found = np.array(center(bounded(vectors).products(), radius * median, iterations)) @ inputs
    assert np.linalg.norm(found - expected) <= 1e-4 * median


@pytest.mark.parametrize(
    ("count", "hostile"), [(1, 0.45), (2, 0.45), (3, 0.45), (8, 0.45), (8, 0.0), (16, 0.3), (16, 0.45)]
)
def test_a_peer_that_agrees_is_who_the_formula_says(count, hostile) -> None:
    """Mix each vector with those most like it, clip, and average those that point to the center at all."""
    vectors = draw(count, spread=2.0)
    vectors[: count // 3] *= -0.5
    inputs = clipped(vectors)
    lengths = np.linalg.norm(inputs, axis=1)
    likeness = inputs @ inputs.T / np.outer(lengths, lengths)
    nearest = np.argsort(-likeness, axis=1)[:, : count - int(hostile * count)]
    towards = inputs @ centered_clip(inputs[nearest].mean(axis=1), 0.3 * lengths.max(), 20) / lengths
    agreeing = towards >= AGREEMENT * np.sort(towards)[(count - 1) // 2]
    found = average(rule("agreeing_mean", hostile=hostile, radius=0.3, iterations=20), vectors)
    assert found == pytest.approx(inputs[agreeing].mean(axis=0), rel=1e-4, abs=1e-6)


def test_where_all_point_elsewhere_the_nearest_agrees(monkeypatch) -> None:
    """There is an average of somebody's contribution whatever the center is."""
    monkeypatch.setattr(rules, "center", lambda mixes, *_: [-1.0] * len(mixes))
    vectors = draw(5, spread=0.1)
    found = average(rule("agreeing_mean"), vectors)
    assert any(found == pytest.approx(each, abs=1e-6) for each in clipped(vectors))


@pytest.mark.parametrize("count", [3, 8, 16])
def test_where_nobody_is_hostile_all_agree(count) -> None:
    """Contributions with something in common, each with three times as much of its own, are all averaged."""
    vectors = draw(count, spread=3.0)
    assert average(rule("agreeing_mean"), vectors) == pytest.approx(clipped(vectors).mean(axis=0), abs=1e-6)


def test_mixing_helps_where_the_honest_lie_far_apart() -> None:
    """Three of eight that send the same reverse the center of five that differ, but not of mixes."""
    vectors = draw(8, spread=2.0)
    truth = vectors[:5].mean(axis=0)
    vectors[5:] = -truth / np.linalg.norm(truth) * np.linalg.norm(vectors[0])

    def likeness(found: np.ndarray) -> float:
        return float(found @ truth / np.linalg.norm(found) / np.linalg.norm(truth))

    inputs = clipped(vectors)
    assert likeness(centered_clip(inputs, 0.1 * np.linalg.norm(inputs, axis=1).max(), 100)) < 0
    assert likeness(average(rule("agreeing_mean"), vectors)) > 0.99


@pytest.mark.parametrize("name", RULES)
def test_threads_and_slices_change_nothing(name, monkeypatch) -> None:
    """The same bits with one thread and with three, and however many products are added at once."""
    vectors = draw(7, numel=70_000)
    before = torch.get_num_threads()
    found = []
    for threads, piece in ((1, 1 << 14), (3, 1 << 14), (2, 999)):
        torch.set_num_threads(threads)
        monkeypatch.setattr(sums, "_SLICE", piece)
        found.append(average(rule(name), vectors, size=40_000).tobytes())
    torch.set_num_threads(before)
    assert found == [found[0]] * 3


@pytest.mark.parametrize("name", RULES)
def test_one_contribution_is_its_own_average(name) -> None:
    """A lone member's round is what it contributed, bit for bit."""
    vectors = draw(1)
    assert np.array_equal(average(rule(name), vectors, [7.0]), vectors[0])


@pytest.mark.parametrize("name", RULES)
def test_of_two_neither_moves_the_average_farther_than_the_other(name) -> None:
    """With two nobody can be outvoted: at all limits one has two thirds of the weight, and no larger norm."""
    vectors = draw(2)
    vectors[1] *= 1e6
    found = average(rule(name), vectors, [1.0, 1e9])
    assert np.linalg.norm(found) <= norm(vectors[0]) * (1 + 1e-5)
    assert found @ vectors[0] > -1 / 3 * norm(vectors[0]) ** 2


@pytest.mark.parametrize(
    ("name", "honest", "hostile"),
    [
        *(("mean", honest, hostile) for honest, hostile in ((3, 1), (5, 2), (12, 4))),
        *(("agreeing_mean", honest, hostile) for honest, hostile in ((2, 1), (5, 3), (9, 7))),
    ],
)
def test_a_peer_that_is_at_all_limits_does_not_turn_the_average(name, honest, hostile) -> None:
    """Reversed contributions, whatever norms and tokens they claim, leave the average pointing the right way.

    With the mean less than a third of the members are needed to turn it, since each may weigh twice as much.
    """
    vectors = draw(honest + hostile, spread=0.3)
    vectors[honest:] *= -1e4
    found = average(rule(name, hostile=0.45), vectors, [1.0] * honest + [1e6] * hostile)
    assert found @ vectors[:honest].mean(axis=0) > 0


def test_claims_of_tokens_move_no_robust_rule() -> None:
    """Tokens are claims: to a robust rule each contribution counts once."""
    vectors, found = draw(6), rule("agreeing_mean")
    assert np.array_equal(average(found, vectors, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), average(found, vectors))


def test_few_hostile_contributions_hardly_matter() -> None:
    """Three of eight that agree on a wrong direction do less than half of what they do to the mean."""
    vectors = draw(8, spread=0.2)
    vectors[5:] = -vectors[:5].mean(axis=0)
    truth = vectors[:5].mean(axis=0)

    def miss(found: np.ndarray) -> float:
        return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))

    assert miss(average(rule("agreeing_mean"), vectors)) < 0.5 * miss(average(rule("mean"), vectors))


@pytest.mark.parametrize("name", RULES)
def test_only_zeros_give_zero(name) -> None:
    """Contributions of zeros have an average of zeros."""
    assert np.array_equal(average(rule(name), np.zeros((4, 10), np.float32)), np.zeros(10))
