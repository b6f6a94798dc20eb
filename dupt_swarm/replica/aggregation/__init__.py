"""What is made of a round's contributions: each is screened and bounded, then a rule makes one average.

Whoever computes a round gets the same bits, on whatever hardware. So all that counts is in the
contributions of the agreed list, and every sum is exact, or added in an order that stands here.

screening       which contributions are sound, whole or in parts
bounding        what one contribution may count for at most, a newcomer's for less
rules           those that a manifest may name: `mean` and `agreeing_mean`
sums            sums over values: of squares, of products, of weighted vectors
"""

from dupt_swarm.replica.aggregation.bounding import FULL, Bounded, Weighting, weightings
from dupt_swarm.replica.aggregation.rules import RULES, Rule
from dupt_swarm.replica.aggregation.screening import keep_norms, screen_norms, screen_part
from dupt_swarm.replica.aggregation.sums import sum_of_squares, weighted_mean

__all__ = [
    "FULL",
    "RULES",
    "Bounded",
    "Rule",
    "Weighting",
    "keep_norms",
    "screen_norms",
    "screen_part",
    "sum_of_squares",
    "weighted_mean",
    "weightings",
]
