"""Rounds of an averager, with the average that it gives away part by part put together again."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dupt_swarm.network.averaging.average import Average, Offer
from dupt_swarm.network.averaging.averager import SwarmAverager


@dataclass(frozen=True)
class Received(Average):
    """A round's outcome, and its average: fp32 ``[numel]``; None if the round failed."""

    values: Tensor | None = None


class Collected:
    """Takes the parts of an average."""

    def __init__(self) -> None:
        self._parts: dict[int, Tensor] = {}

    def take(self, number: int, part: Tensor) -> None:
        """See `NextState.take`."""
        assert number not in self._parts
        self._parts[number] = part

    @property
    def values(self) -> Tensor:
        """All of them, in order."""
        return torch.cat([self._parts[number] for number in range(len(self._parts))])

    def with_outcome(self, outcome: Average) -> Received:
        """What a round has brought."""
        return Received(**vars(outcome), values=None if outcome.reason else self.values)


async def average(
    averager: SwarmAverager,
    contribution: bytes,
    weight: float,
    *,
    round: int = 7,
    digest: str = "ab" * 32,
    group_size: int,
) -> Received:
    """Take part in a round."""
    collected = Collected()
    offer = Offer(contribution, weight, round, digest, collected.take)
    return collected.with_outcome(await averager.average(offer, group_size))
