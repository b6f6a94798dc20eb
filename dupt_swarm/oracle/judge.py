"""Judges the states that rounds lead to, by the text that is held out here.

A rule of aggregation sees numbers only, and contributions of which each is plausible may still lead to a
worse model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import nn

from dupt_swarm.learning.interruptible import Abandoned
from dupt_swarm.learning.strategies.flat import standing_at
from dupt_swarm.optimizer.collaborative import State

# Of the tokens that were trained on since the last round, so many are read at most, for a third of the work.
TOKENS_RATIO = 0.03
BLOCKS = (16, 8, 4)  # fewer tell too little
MARGIN = 0.01  # members' texts differ, and so does what a good round does for each


class Judge:
    """Accepts a state with which the loss on some held-out blocks is not much larger than before.

    Rounds that are too short to look are accepted, and so is what the owner has no time for who stops it.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], context_length: int, measure: Callable[[int], float]
    ) -> None:
        """Begin.

        Args:
            parameters: of the model.
            context_length: tokens of a block.
            measure: the loss of the model, with the values that its parameters have, on so many held-out
                blocks, in nats per token; the same blocks each time.
        """
        self._parameters, self._context_length, self._measure = parameters, context_length, measure
        self._known: dict[tuple[str, int], float] = {}

    def __call__(self, tokens: int, before: State, after: State) -> bool:
        """See `optimizer.collaborative.Judge`."""
        affordable = TOKENS_RATIO * tokens / self._context_length
        blocks = next((count for count in BLOCKS if count <= affordable), 0)
        if not blocks:
            return True
        try:
            usual, found = (self._loss(state, blocks) for state in (before, after))
        except Abandoned:
            return True
        self._known = {(before[0], blocks): usual, (after[0], blocks): found}
        return accepts(usual, found)

    def _loss(self, state: State, blocks: int) -> float:
        """Mostly, the state before a round is the one after the last."""
        digest, anchor = state
        if (digest, blocks) in self._known:
            return self._known[digest, blocks]
        with standing_at(anchor, self._parameters):
            return self._measure(blocks)


def accepts(before: float, after: float) -> bool:
    """Whether a round may lead from a state with the loss ``before`` to one with the loss ``after``.

    Both in nats per token, of the same held-out text.
    """
    return math.isfinite(after) and after <= before * (1 + MARGIN)
