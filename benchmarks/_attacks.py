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

    @property
    def common(self) -> Tensor:
        """What the honest have in common: their mean."""
        return self.honest.mean(dim=0)

    def own(self, member: int) -> Tensor:
        """What this one knows by itself: the part of its contribution across the mean."""
        mean = self.common / self.common.norm()
        own: Tensor = self.honest[member] - float(self.honest[member] @ mean) * mean
        return own

    def reversed(self, norm: float) -> Tensor:
        """The opposite direction of the honest mean, with this norm."""
        return self.common * (-norm / float(self.common.norm()))


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
    return [seen.common * -0.5] * seen.attackers


def little(seen: Seen) -> list[Tensor]:
    """A little is enough (Baruch et al. 2019, arXiv 1902.06156): the mean − z standard deviations.

    z as in its algorithm 3: as many honest members as a majority needs are still farther away.
    """
    honest = len(seen.honest)
    members = honest + seen.attackers
    supporters = members // 2 + 1 - seen.attackers
    z = statistics.NormalDist().inv_cdf((honest - supporters) / honest)
    return [seen.common - z * seen.honest.std(dim=0)] * seen.attackers


def mimic(seen: Seen) -> list[Tensor]:
    """All copy one honest member (Karimireddy et al. 2020, arXiv 2006.09365), whose text then counts more."""
    return [seen.honest[0].clone()] * seen.attackers


def edge(seen: Seen) -> list[Tensor]:
    """Agree with the honest mean a little, and undo one member's own part."""
    return [_towards(seen, (0.25, seen.common), (-0.97, seen.own(0)))] * seen.attackers


def edge_apart(seen: Seen) -> list[Tensor]:
    """As `edge`, each with noise of its own, so that no two of them look alike."""
    made = []
    for _ in range(seen.attackers):
        noise = torch.randn(seen.common.shape, generator=seen.generator)
        made.append(_towards(seen, (0.25, seen.common), (-0.7, seen.own(0)), (0.67, noise)))
    return made


def edge_each(seen: Seen) -> list[Tensor]:
    """As `edge`, each against another member."""
    victims = (number % len(seen.honest) for number in range(seen.attackers))
    return [_towards(seen, (0.25, seen.common), (-0.97, seen.own(victim))) for victim in victims]


def against(seen: Seen) -> list[Tensor]:
    """Agree hardly enough with the two members who make the majority, and oppose what all have in common."""
    two = seen.own(-1) + seen.own(-2)
    back, longest = 0.0, 4.0
    while longest - back > 1e-3:
        tried = (back + longest) / 2
        made = _towards(seen, (1.0, two), (-tried, seen.common)) / seen.norm
        likeness = min(float(made @ each / each.norm()) for each in seen.honest[-2:])
        back, longest = (tried, longest) if likeness > 0.06 else (back, tried)
    return [_towards(seen, (1.0, two), (-back, seen.common))] * seen.attackers


def _towards(seen: Seen, *parts: tuple[float, Tensor]) -> Tensor:
    """A sum of directions, each with its length, that has the median norm."""
    made = torch.stack([length / float(way.norm()) * way for length, way in parts]).sum(dim=0)
    return made * (seen.norm / float(made.norm()))


ATTACKS: dict[str, Callable[[Seen], list[Tensor]]] = {
    "noise": noise,
    "sign-flip": sign_flip,
    "scale": scale,
    "inner-product": inner_product,
    "little": little,
    "mimic": mimic,
    "edge": edge,
    "edge-apart": edge_apart,
    "edge-each": edge_each,
    "against": against,
}
