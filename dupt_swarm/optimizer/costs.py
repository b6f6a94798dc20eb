"""What rounds cost the trainer: the time for which they hold it up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dupt_swarm.learning.stopwatch import Span, begin_span
from dupt_swarm.node.record import RecordUpdate

ROUNDS = 10


@dataclass(frozen=True)
class _End:
    """The end of a round.

    Attributes:
        time: of the clock, in seconds.
        held_up: seconds for which rounds have held the trainer up by then, since the start.
        waited: those of them in which it waited for its node.
    """

    time: float
    held_up: float
    waited: float


class RoundCosts:
    """How long rounds hold the trainer up: the last one, the last ten, and all.

    They do while it waits for its node (for the network, that is, and the outer step; where rounds overlap
    with training it hardly does), and while it copies its parameters or takes over a state. From the end of
    one round to the end of another::

        utilization = (time − time held up) ÷ time

    is the part that is left for training: tokens per second over whole rounds ÷ tokens per second while
    stepping. Where progress is given up, all the time since the last round counts as held up. Pauses and the
    first step are no part of the time; whatever else is done between two steps counts as training.
    """

    def __init__(self, device: torch.device) -> None:
        """``device`` trains."""
        self._device = device
        self._held_up = self._waited = 0.0
        self._ends: deque[_End] = deque(maxlen=ROUNDS + 1)  # empty: it does not train
        self._spans: deque[Span] = deque()  # of `holding_up`, that the device has not passed yet

    def train(self) -> None:
        """An inner step is done: with the first one the clock starts."""
        if not self._ends:
            self._mark()

    def pause(self) -> None:
        """No more inner steps for a while; what follows is measured anew."""
        self._ends.clear()

    def end_round(self) -> None:
        """There is a new state to train from."""
        if self._ends:
            self._mark()

    def give_up(self) -> None:
        """All progress is given up, so the time since the last round was of no use."""
        if self._ends:
            last = self._ends[-1]
            self._spans.clear()
            self._held_up = last.held_up + time.monotonic() - last.time

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the trainer waits for its node."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self._ends:
                seconds = time.monotonic() - began
                self._waited += seconds
                self._held_up += seconds

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """Inside, the trainer works for the round. A GPU may do so later: it counts when that is through."""
        span = begin_span(self._device)
        try:
            yield
        finally:
            span.end()
            self._spans.append(span)

    def update(self) -> RecordUpdate:
        """These costs in the record; before the first round has ended there are none."""
        if len(self._ends) < 2:
            return RecordUpdate(utilization=None, round_waiting_seconds=None, waiting_seconds=self._waited)
        first, before, last = self._ends[0], self._ends[-2], self._ends[-1]
        ratio = (last.held_up - first.held_up) / max(last.time - first.time, 1e-9)
        return RecordUpdate(
            utilization=1.0 - min(ratio, 1.0),
            round_waiting_seconds=last.waited - before.waited,
            waiting_seconds=self._waited,
        )

    def _mark(self) -> None:
        while self._spans and (seconds := self._spans[0].seconds) is not None:
            self._held_up += seconds
            self._spans.popleft()
        self._ends.append(_End(time.monotonic(), self._held_up, self._waited))
