"""The state that follows from another by a round, computed part by part while the round's average arrives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from dupt_swarm.replica.blob import chunk_hashes
from dupt_swarm.replica.codec import part_sizes
from dupt_swarm.replica.outer import OuterOptimizer
from dupt_swarm.replica.state import ReplicaState, all_finite

Take = Callable[[int, Tensor], None]
"""Takes a part of a round's average, by its number; see `NextState.take`."""


class NextState:
    """A replica state that is being computed: in any order of its parts, in several threads at once.

    Each part is stepped, checked and hashed while it is in the processor's cache, so that little is left
    to do when the last one is there.

    Attributes:
        before: the state that it follows from.
    """

    def __init__(
        self, outer: OuterOptimizer, before: ReplicaState, empty: Callable[[int], Tensor] = torch.empty
    ) -> None:
        """Begin.

        Args:
            outer: does each step.
            before: is not changed.
            empty: gives memory for so many values.
        """
        numel = before.anchor.numel()
        self._outer, self.before = outer, before
        self._after = ReplicaState(
            before.round + 1,
            before.swarm_tokens,
            before.layout,
            empty(numel),
            {name: empty(numel) for name in before.buffers},
        )
        self._places = [slice(*pair) for pair in pairwise(accumulate(part_sizes(numel), initial=0))]
        self._finite = True
        self._hashes: dict[int, list[list[bytes]]] = {}  # by part: of its chunk of each section

    def take(self, number: int, average: Tensor) -> None:
        """The average contribution to part ``number`` is here: fp32 ``[n]``; it is used up."""
        place = self._places[number]
        self._outer.step(self.before, self._after, place, average)
        values = [tensor[place] for tensor in self._after.tensors]
        if not all(map(all_finite, values)):
            self._finite = False
        self._hashes[number] = [chunk_hashes(each.numpy().data) for each in values]

    def finish(
        self, tokens: int, members: Collection[str], left: Collection[str] = (), *, weak: bool = False
    ) -> ReplicaState:
        """The state, once all parts were taken.

        Args:
            tokens: what the average stands for.
            members: ids of the peers that have ended the round together.
            left: of those that have left.
            weak: whether less than a quorum has decided; see `Electorate.after`.

        Raises:
            OverflowError: it would not be finite.
        """
        if not self._finite:
            raise OverflowError("the outer step is not finite")
        by_section = zip(*(self._hashes[number] for number in range(len(self._places))), strict=True)
        hashes = [sha256 for section in by_section for part in section for sha256 in part]
        before = self.before
        return replace(
            self._after,
            swarm_tokens=before.swarm_tokens + tokens,
            electorate=before.electorate.after(members, left, weak=weak),
        ).hashed(hashes)
