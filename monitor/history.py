"""What the monitor remembers of the swarm since it started: the points of the loss curve."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from dupt_swarm.manifest import Limits
from dupt_swarm.node.view import View

POINTS_MAX = 2000


@dataclass(frozen=True)
class Point:
    """The swarm at one refresh; losses in nats per token or example, None where nobody said anything.

    Attributes:
        time: of the refresh, seconds since the epoch.
        round: rounds in the newest replica state that half of the working oracles have.
        tokens: see `Totals.tokens`.
        loss: mean training loss, oracles weighted by their speed.
        loss_min: least training loss of any oracle.
        loss_max: greatest training loss of any oracle.
        heldout_loss: median of the oracles on text of theirs that they do not train on.
        evaluator_loss: an evaluator's, on text that no oracle trains on.
        heldout_accuracy: of a task's answers or of masked tokens, median of the oracles, 0 to 1.
        heldout_nsp_accuracy: of whether a text follows on another, likewise.
    """

    time: float
    round: int
    tokens: int
    loss: float | None = None
    loss_min: float | None = None
    loss_max: float | None = None
    heldout_loss: float | None = None
    evaluator_loss: float | None = None
    heldout_accuracy: float | None = None
    heldout_nsp_accuracy: float | None = None

    @classmethod
    def of(cls, view: View, tokens: int, limits: Limits) -> Point:
        """The point of ``view``; ``tokens``: see `Totals.tokens`."""
        agreed = view.agreed
        records = [peer.record for peer in view.oracles]
        losses = [record.loss for record in records if record.loss is not None]
        # One curve can show one dataset only: always the same.
        evaluation = next(iter(view.evaluations.values()), None)
        return cls(
            time=view.time,
            round=agreed.record.round if agreed else 0,
            tokens=tokens,
            loss=view.loss(limits),
            loss_min=min(losses, default=None),
            loss_max=max(losses, default=None),
            heldout_loss=_median(record.heldout_loss for record in records),
            evaluator_loss=evaluation.loss_nats if evaluation else None,
            heldout_accuracy=_median(record.heldout_accuracy for record in records),
            heldout_nsp_accuracy=_median(record.heldout_nsp_accuracy for record in records),
        )


class History:
    """Points at even distances in time, from the first to the newest, in bounded memory.

    When there are too many, every second one goes and the distance doubles: the curve is always whole.

    Attributes:
        points: oldest first; replaced as a whole, so any thread may read it.
    """

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        """Remember nothing yet, and at most ``points_max`` points (at least 4)."""
        self.points: tuple[Point, ...] = ()
        self._points_max, self._distance = points_max, 0.0

    def add(self, point: Point) -> None:
        """Remember ``point`` as the newest; others that are not older go: the clock was set back."""
        points = self.points
        while points and points[-1].time >= point.time:
            points = points[:-1]
        # The newest point is always there; it makes way for the next one while it is too near.
        if len(points) >= 2 and point.time - points[-2].time < self._distance:
            points = points[:-1]
        points = (*points, point)
        if len(points) > self._points_max:
            points = (*points[:-1:2], point)
            self._distance = max(2 * self._distance, 2 * (point.time - points[0].time) / self._points_max)
        self.points = points


def _median(values: Iterable[float | None]) -> float | None:
    # Not the mean: anybody may claim a loss of a million.
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
