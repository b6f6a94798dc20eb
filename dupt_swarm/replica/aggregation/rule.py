"""What a rule of aggregation is, and the one that a manifest names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from torch import Tensor

from dupt_swarm.manifest import Aggregation
from dupt_swarm.replica.aggregation.agreeing_mean import AgreeingMean
from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.centered_clip import CenteredClip
from dupt_swarm.replica.aggregation.mean import Mean
from dupt_swarm.replica.aggregation.trimmed_mean import TrimmedMean


class Rule(Protocol):
    """Makes one average of contributions."""

    def average(self, bounded: Bounded) -> Iterator[Tensor]:
        """The average, part after part: fp32 ``[n]`` each, with the same bits on any machine."""


RULES: dict[str, Callable[[Aggregation], Rule]] = {
    "mean": lambda _: Mean(),
    "trimmed_mean": lambda table: TrimmedMean(table.hostile),
    "centered_clip": lambda table: CenteredClip(table.radius, table.iterations),
    "agreeing_mean": lambda table: AgreeingMean(table.hostile, table.radius, table.iterations),
}


def build_rule(table: Aggregation) -> Rule:
    """The rule that the manifest's table `[aggregation]` names."""
    return RULES[table.rule](table)
