"""What is made of a round's contributions: each is screened and bounded, then a rule makes one average.

Whoever computes a round gets the same bits, on whatever hardware. So all that counts is in the
contributions of the agreed list, and every sum is exact, or added in an order that stands here.

screening       which contributions are sound, whole or in parts
probation       what newcomers' contributions count for
bounding        what one contribution may count for at most: median norm, twice the median weight
sums            sums over values: of squares, of products, of weighted vectors
rule            `Rule`, and which there are
mean            the weighted mean
trimmed_mean    each value without the largest and smallest ones
centered_clip   the mean of those that are near it, found step by step
agreeing_mean   the mean of those that point where the honest majority goes
"""

from dupt_swarm.replica.aggregation.bounding import Bounded
from dupt_swarm.replica.aggregation.probation import standings
from dupt_swarm.replica.aggregation.rule import Rule, build_rule
from dupt_swarm.replica.aggregation.screening import (
    keep_norms,
    screen_norms,
    screen_part,
)
from dupt_swarm.replica.aggregation.sums import sum_of_squares, weighted_mean

__all__ = [
    "Bounded",
    "Rule",
    "build_rule",
    "keep_norms",
    "screen_norms",
    "screen_part",
    "standings",
    "sum_of_squares",
    "weighted_mean",
]
