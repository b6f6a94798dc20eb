"""Judges the states that rounds lead to, by the text that is held out here.

A rule of aggregation sees numbers only, and contributions of which each is plausible may still lead to a
worse model.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from torch import nn

from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.strategies.flat import standing_at
from dupt_swarm.optimizer.collaborative import State

# Of the tokens that were trained on since the last round, so many are read at most, for a third of the work.
TOKENS_RATIO = 0.03
BLOCKS = (16, 8, 4)  # fewer tell too little
GROUPS = 4  # of blocks, each with a loss of its own: how far these lie apart tells what chance does
MARGIN = 0.01  # members' texts differ, and so does what a good round does for each
ERRORS, CHANCE = 2.0, 0.05  # standard errors that may be chance, and the most that they allow, of the loss
LITTLE = 1.0  # nats; a smaller loss counts as so much: of a text known by heart, chance makes a multiple


class Judge:
    """Accepts a state with which the loss on some held-out blocks is not much larger than before.

    Rounds that are too short to look are accepted, and so is what the owner has no time for who stops it.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], context_length: int, measure: Callable[[int, int], float]
    ) -> None:
        """Begin.

        Args:
            parameters: of the model.
            context_length: tokens of a block.
            measure: the loss of the model, with the values that its parameters have, on so many held-out
                blocks, the first of which is the second argument, in nats per token; the same each time.
        """
        self._parameters, self._context_length, self._measure = parameters, context_length, measure
        self._known: dict[tuple[str, int], list[float]] = {}

    def __call__(self, tokens: int, before: State, after: State) -> bool:
        """See `optimizer.collaborative.Judge`."""
        affordable = TOKENS_RATIO * tokens / self._context_length
        blocks = next((count for count in BLOCKS if count <= affordable), 0)
        if not blocks:
            return True
        try:
            usual, found = (self._losses(state, blocks) for state in (before, after))
        except Abandoned:
            return True
        self._known = {(before[0], blocks): usual, (after[0], blocks): found}
        return accepts(usual, found)

    def _losses(self, state: State, blocks: int) -> list[float]:
        """The loss of each group of blocks. Mostly, the state before a round is the one after the last."""
        digest, anchor = state
        if (digest, blocks) in self._known:
            return self._known[digest, blocks]
        size = blocks // GROUPS
        with standing_at(anchor, self._parameters):
            return [self._measure(size, number * size) for number in range(GROUPS)]


def accepts(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether a round may lead from a state with the losses ``before`` to one with the losses ``after``.

    Each in nats per token, of the same groups of held-out text, at least two. Where a group has few tokens to
    predict, such as masked ones, the losses rise and fall by chance by more than a good round changes them.
    """
    rises = [new - old for old, new in zip(before, after, strict=True)]
    if not all(math.isfinite(rise) for rise in rises):
        return False
    chance = ERRORS * statistics.stdev(rises) / math.sqrt(len(rises))
    usual = max(LITTLE, statistics.fmean(before))
    return statistics.fmean(rises) <= MARGIN * usual + min(chance, CHANCE * usual)
