"""What the attackers of `byzantine.py` contribute: all of them know what every honest member does."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# × the median norm; the manifest's limits let pass what has 10 times the norm for each of 4 times the tokens.
LARGEST = 39.0


@dataclass(frozen=True)
class Seen:
    """What attackers see of a round.

    Attributes:
        honest: the honest contributions as they are decoded, fp32 ``[members, numel]``.
        attackers: how many attack.
        generator: draws their noise.
    """

    honest: Tensor
    attackers: int
    generator: torch.Generator

    @property
    def norm(self) -> float:
        """The median norm of the honest."""
        return float(statistics.median(self.honest.double().norm(dim=1).tolist()))

    def reversed(self, norm: float) -> Tensor:
        """The opposite direction of the honest mean, with this norm."""
        mean = self.honest.mean(dim=0)
        return mean * (-norm / float(mean.norm()))


def noise(seen: Seen) -> list[Tensor]:
    """Each its own noise, as large as the limits allow."""
    numel = seen.honest.shape[1]
    drawn = [torch.randn(numel, generator=seen.generator) for _ in range(seen.attackers)]
    return [each * (LARGEST * seen.norm / float(each.norm())) for each in drawn]


def sign_flip(seen: Seen) -> list[Tensor]:
    """The honest mean reversed, with the norm that honest contributions have."""
    return [seen.reversed(seen.norm)] * seen.attackers


def scale(seen: Seen) -> list[Tensor]:
    """The honest mean reversed, as large as the limits allow."""
    return [seen.reversed(LARGEST * seen.norm)] * seen.attackers


def inner_product(seen: Seen) -> list[Tensor]:
    """Inner-product manipulation (Xie et al. 2019, arXiv 1903.03936): −ε × the honest mean, with ε = 0.5."""
    return [seen.honest.mean(dim=0) * -0.5] * seen.attackers


def little(seen: Seen) -> list[Tensor]:
    """A little is enough (Baruch et al. 2019, arXiv 1902.06156): the mean − z standard deviations.

    z as in its algorithm 3: as many honest members as a majority needs are still farther away.
    """
    honest = len(seen.honest)
    members = honest + seen.attackers
    supporters = members // 2 + 1 - seen.attackers
    z = statistics.NormalDist().inv_cdf((honest - supporters) / honest)
    return [seen.honest.mean(dim=0) - z * seen.honest.std(dim=0)] * seen.attackers


def mimic(seen: Seen) -> list[Tensor]:
    """All copy one honest member (Karimireddy et al. 2020, arXiv 2006.09365), whose text then counts more."""
    return [seen.honest[0].clone()] * seen.attackers


def edge(seen: Seen) -> list[Tensor]:
    """Made for `agreeing_mean`: agree with the honest mean hardly enough, and undo one member's own part."""
    mean = seen.honest.mean(dim=0)
    mean = mean / mean.norm()
    own = seen.honest[0] - float(seen.honest[0] @ mean) * mean
    return [(0.25 * mean - 0.97 / float(own.norm()) * own) * seen.norm] * seen.attackers


ATTACKS: dict[str, Callable[[Seen], list[Tensor]]] = {
    "noise": noise,
    "sign-flip": sign_flip,
    "scale": scale,
    "inner-product": inner_product,
    "little": little,
    "mimic": mimic,
    "edge": edge,
}
