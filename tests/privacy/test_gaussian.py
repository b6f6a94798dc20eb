"""Clipping, and noise that nobody can draw again."""

import math

import pytest
import torch
from torch import Tensor

from dupt_swarm.privacy.gaussian import DRAWN_AT_ONCE, gaussian, privatize

HARDLY = 1e-12  # noise that changes nothing that a test sees
NUMEL = DRAWN_AT_ONCE + 1001


def vector(norm: float) -> Tensor:
    drawn = torch.randn(NUMEL)
    return drawn * (norm / float(drawn.norm()))


def largest_gap(values: Tensor) -> float:
    """The largest distance between their distribution function and the normal one (Kolmogorov 1933)."""
    ordered = values.double().sort().values
    expected = 0.5 * (1 + torch.erf(ordered / math.sqrt(2)))
    steps = torch.arange(len(values) + 1, dtype=torch.float64) / len(values)
    return float(torch.maximum((expected - steps[:-1]).abs(), (expected - steps[1:]).abs()).max())


def allowed_gap(count: int) -> float:
    """What it exceeds once in 10⁹ times if they are normal (Dvoretzky, Kiefer, Wolfowitz; Massart 1990)."""
    return math.sqrt(math.log(2 / 1e-9) / (2 * count))


@pytest.mark.parametrize(("norm", "clip", "left"), [(5.0, 2.0, 2.0), (1.0, 2.0, 1.0), (0.0, 2.0, 0.0)])
def test_what_is_too_long_is_clipped(norm: float, clip: float, left: float) -> None:
    """A longer vector keeps its direction and gets the norm of the bound; a shorter one stays as it is."""
    given = vector(norm)
    values = given.clone()
    privatize(values, clip, HARDLY)
    torch.testing.assert_close(values, given * (left / norm if norm else 1.0), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2, 100_001])
def test_as_many_numbers_as_asked_for(count: int) -> None:
    """Odd counts too."""
    assert gaussian(count).shape == (count,)


def test_numbers_are_normal() -> None:
    """Their distribution is the normal one, as far as a million of them can tell."""
    drawn = gaussian(1_000_001)
    assert largest_gap(drawn) < allowed_gap(len(drawn))
    half = len(drawn) // 2  # both numbers of each pair
    together = (drawn[:half] + drawn[half + 1 :]) / math.sqrt(2)
    assert largest_gap(together) < allowed_gap(half)


def test_noise_has_the_deviation_that_was_asked_for() -> None:
    """Of each value: the noise multiplier × the norm that is clipped to."""
    clip, noise = 40.0, 1e-3  # so little that the second clipping does nothing
    values = torch.zeros(NUMEL)
    privatize(values, clip, noise)
    assert largest_gap(values / (clip * noise)) < allowed_gap(NUMEL)


def test_noise_does_not_follow_from_a_seed() -> None:
    """PyTorch's seed, which a manifest or a checkpoint may hold, gives no noise again."""
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(gaussian(1000))
    assert not torch.equal(*drawn)
    cosine = float(drawn[0] @ drawn[1] / drawn[0].norm() / drawn[1].norm())
    assert abs(cosine) < 8 / math.sqrt(1000)


def test_what_goes_out_is_within_the_bound() -> None:
    """However much noise was added; beside so much of it, nothing of the direction is left to see."""
    given = vector(1.0)
    values = given.clone()
    privatize(values, 2.0, 1.0)
    assert float(values.double().norm()) == pytest.approx(2.0, rel=1e-5)
    assert abs(float(given @ values)) / 2.0 < 8 / math.sqrt(NUMEL)
