"""The rules of aggregation against plain formulas of NumPy, and what hostile contributions can do."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from dupt_swarm.manifest import Aggregation
from dupt_swarm.replica.aggregation import FULL, RULES, Bounded, Rule, Weighting, sum_of_squares, sums
from dupt_swarm.replica.aggregation.rules import AGREEMENT, agreeing, without_conflicts


def rule(name: str) -> Rule:
    return RULES[Aggregation.model_validate({"rule": name}).rule]


def norm(vector: np.ndarray) -> float:
    return float(np.sqrt(sum_of_squares(torch.from_numpy(vector))))


def bounded(
    vectors: np.ndarray,
    weights: Sequence[float] | None = None,
    size: int = 1000,
    weightings: Sequence[Weighting] = (),
) -> Bounded:
    """The rows as contributions in parts of ``size`` values."""

    def parts() -> Iterator[list[Tensor]]:
        for start in range(0, vectors.shape[1], size):
            yield [torch.from_numpy(row[start : start + size].copy()) for row in vectors]

    norms = [norm(row) for row in vectors]
    return Bounded.of(parts, norms, weights or [1.0] * len(vectors), weightings)


def average(
    found: Rule, vectors: np.ndarray, weights: Sequence[float] | None = None, size: int = 1000
) -> np.ndarray:
    return torch.cat(list(found(bounded(vectors, weights, size)))).numpy()


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


def agreeing_mean(vectors: np.ndarray) -> np.ndarray:
    """As the docstrings have it, on whole vectors."""
    inputs = clipped(vectors)
    units = inputs / np.linalg.norm(inputs, axis=1)[:, None]
    cosines, middle = units @ units.T, (len(inputs) - 1) // 2
    likeness = np.sort(cosines, axis=1)[:, middle]
    kept = np.flatnonzero(likeness >= min(AGREEMENT * np.sort(likeness)[middle], likeness.max()))
    inputs, units, cosines = inputs[kept], units[kept], cosines[np.ix_(kept, kept)]
    weights = 1 / (np.maximum(cosines, 0) ** 2).sum(axis=1)
    weights /= weights.sum()
    common = np.maximum(cosines @ weights, 0)
    total = np.zeros(vectors.shape[1])
    for one, weight in enumerate(weights):
        left = inputs[one].copy()
        for other in np.argsort(cosines[one], kind="stable"):
            if cosines[one, other] < 0 and (against := left @ units[other]) < 0:
                both = common[one] + common[other]
                left -= min(1, 3 * common[other] / both if both else 1) * against * units[other]
        total += weight * left
    return total


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
@pytest.mark.parametrize("seed", range(4))
def test_the_agreeing_mean_is_what_its_docstrings_say(count, seed) -> None:
    """Coefficients from products of vectors give what whole vectors give; some oppose others, or all."""
    vectors = draw(count, seed, spread=2.0)
    common = vectors.mean(axis=0)
    for place in range(count // 3):
        against = vectors[0] + 0.5 * place * vectors[1]
        vectors[-1 - place] = (-0.8, 0.5, 0.3, 0.2, 0.1)[place] * common - against + vectors[2]
    expected = agreeing_mean(vectors)
    assert average(rule("agreeing_mean"), vectors) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_where_all_point_elsewhere_the_nearest_agrees() -> None:
    """There is an average of somebody's contribution, however far apart all are."""
    rows = [
        [1.0, -0.3, -0.3, -0.3],
        [-0.3, 1.0, -0.2, -0.2],
        [-0.3, -0.2, 1.0, -0.2],
        [-0.3, -0.2, -0.2, 1.0],
    ]
    assert agreeing(rows, range(4)) == [False, True, True, True]


@pytest.mark.parametrize("count", [3, 8, 16])
def test_where_nobody_is_hostile_all_count_alike(count) -> None:
    """Contributions with something in common, each with three times as much of its own, are all averaged."""
    vectors = draw(count, spread=3.0)
    expected = clipped(vectors).mean(axis=0)
    miss = np.linalg.norm(average(rule("agreeing_mean"), vectors) - expected)
    assert miss <= 0.02 * np.linalg.norm(expected)


def test_copies_of_a_contribution_count_like_one() -> None:
    """Whoever sends what another has sent does not double that text's weight."""
    vectors = draw(8, spread=3.0, numel=250_000)
    once = average(rule("agreeing_mean"), vectors[3:], size=250_000)
    vectors[:3] = vectors[3]
    copied = average(rule("agreeing_mean"), vectors, size=250_000)
    assert np.linalg.norm(copied - once) <= 0.1 * np.linalg.norm(once)
    assert np.linalg.norm(vectors.mean(axis=0) - once) >= 0.4 * np.linalg.norm(once)


def test_what_one_knows_is_not_turned_round() -> None:
    """Three of eight that agree with most, and take back what one knows by itself, hide it at most."""
    vectors = draw(8, spread=2.0)
    common = vectors[:5].mean(axis=0)
    own = vectors[0] - (vectors[0] @ common) / (common @ common) * common
    hostile = 0.25 * common / np.linalg.norm(common) - 0.97 * own / np.linalg.norm(own)
    vectors[5:] = hostile * np.linalg.norm(vectors[0])
    without = vectors[1:5].mean(axis=0)
    found = average(rule("agreeing_mean"), vectors)
    assert vectors.mean(axis=0) @ own < 1.5 * (without @ own) < 0
    assert found @ own > without @ own
    assert found @ common > 0.9 * (without @ common)


def test_newcomers_make_no_member_yield() -> None:
    """Keys are cheap: what members contribute stays as it is, whatever newcomers have against it."""
    cosines = [[1.0, 0.9, 0.0, -0.4], [0.9, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.3], [-0.4, 0.0, 0.3, 1.0]]
    weights = [0.25] * 4

    def last(*standings: float) -> float:
        """How much of the last contribution is in the sum."""
        return without_conflicts(cosines, cosines, weights, standings)[3]

    assert last(1.0, 1.0, 1.0, 0.25) == weights[3] < last(1.0, 1.0, 1.0, 1.0)
    # The third has more in common with the last than with the first.
    assert last(1.0, 1.0, 0.25, 1.0) < last(1.0, 1.0, 1.0, 1.0)


def test_nobody_yields_to_what_has_nothing_in_common_with_all() -> None:
    """One that opposes all takes nothing out of what they have in common."""
    cosines = [[1.0, 0.9, -0.6], [0.9, 1.0, -0.6], [-0.6, -0.6, 1.0]]
    weights = [0.45, 0.45, 0.1]
    assert without_conflicts(cosines, cosines, weights, [1.0] * 3)[2] == weights[2]


def test_the_order_of_contributions_does_not_matter() -> None:
    """Each yields to the most opposed first, wherever that stands in the list."""
    cosines, weights = [[1.0, -0.2, -0.7], [-0.2, 1.0, 0.5], [-0.7, 0.5, 1.0]], [0.3, 0.3, 0.4]

    def found(*order: int) -> list[float]:
        rows = [[cosines[one][other] for other in order] for one in order]
        return without_conflicts(rows, rows, [weights[one] for one in order], [1.0] * 3)

    one, other, third = found(0, 1, 2)
    assert found(0, 2, 1) == pytest.approx([one, third, other])


def test_newcomers_that_are_not_asked_outvote_nobody() -> None:
    """Two members agree; of six that point back none is in the average, though they are most."""
    vectors = draw(8, spread=0.2)
    vectors[2:] *= -1
    new = Weighting(0.25, judges=False)
    [found] = rule("agreeing_mean")(bounded(vectors, None, 2500, [FULL] * 2 + [new] * 6))
    assert found.numpy() == pytest.approx(vectors[:2].mean(axis=0), abs=1e-3)


def test_newcomers_do_not_crowd_out_a_member() -> None:
    """Eight that copy what one member says lower its share, which theirs adds to, by less than a third."""
    vectors = draw(4, spread=3.0)
    copied = np.concatenate([vectors, np.tile(vectors[0], (8, 1))])
    new = Weighting(0.25, judges=False)

    def share(inputs: np.ndarray, weightings: Sequence[Weighting]) -> float:
        """How much of the first is in the average."""
        [found] = rule("agreeing_mean")(bounded(inputs, None, 2500, weightings))
        return float(np.linalg.lstsq(vectors.T, found.numpy(), rcond=None)[0][0])

    assert share(copied, [FULL] * 4 + [new] * 8) > 0.67 * share(vectors, [FULL] * 4)


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
    found = average(rule(name), vectors, [1.0] * honest + [1e6] * hostile)
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
