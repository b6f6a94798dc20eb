"""What panel and log remember, in memory that does not grow however many weeks it is looked at."""

from __future__ import annotations

import math
import time

from dupt_swarm.node.messages import Traffic
from dupt_swarm.node.view import View
from dupt_swarm.oracle.status import Status
from dupt_swarm.speed import Speed
from peers.screen.facts import About, Facts, Flow

POINTS_MAX = 1024


class Curve:
    """A series from its beginning on: when it becomes long, neighbours are averaged, pair by pair."""

    def __init__(self, points: int = POINTS_MAX) -> None:
        """At most so many ``points`` are kept."""
        self.values: list[float] = []
        self._most, self._stride = points, 1
        self._waiting: list[float] = []

    def add(self, value: float | None) -> None:
        """The next value; what is unknown or not finite is passed over."""
        if value is None or not math.isfinite(value):
            return
        self._waiting.append(value)
        if len(self._waiting) < self._stride:
            return
        self.values.append(sum(self._waiting) / self._stride)
        self._waiting.clear()
        if len(self.values) == self._most:
            self.values = [
                (first + second) / 2
                for first, second in zip(self.values[::2], self.values[1::2], strict=True)
            ]
            self._stride *= 2


class Odometer:
    """Adds up a counter that begins at 0 again whenever the node is started again."""

    def __init__(self) -> None:
        self.total, self._last, self._speed = 0, 0, Speed()

    def read(self, count: int) -> None:
        """What the counter says now."""
        new = count - self._last if count >= self._last else count
        self._last, self.total = count, self.total + new
        self._speed.add(new)

    @property
    def per_second(self) -> float:
        """Over the last seconds."""
        return self._speed.per_second


class History:
    """What is remembered of an oracle's reports."""

    def __init__(self) -> None:
        self.losses, self.held_out = Curve(), Curve()
        self.sent, self.received = Odometer(), Odometer()
        self._evaluation: object = None
        self._round, self._began = -1, 0.0

    def note(self, status: Status, traffic: Traffic) -> None:
        """A report."""
        self.sent.read(traffic.sent)
        self.received.read(traffic.received)
        if status.state != "paused":
            self.losses.add(status.loss)
        if status.latest is not None and status.latest is not self._evaluation:
            self._evaluation = status.latest
            self.held_out.add(status.latest.loss_nats)
        # Whoever is paused takes no part in a round: it begins anew.
        if status.round != self._round or status.state == "paused":
            self._round, self._began = status.round, time.monotonic()

    def facts(self, about: About, status: Status, view: View) -> Facts:
        """Everything that there is to show now, but for events and downloads."""
        return Facts(
            about,
            status,
            view,
            up=Flow(self.sent.total, self.sent.per_second, about.max_upload),
            down=Flow(self.received.total, self.received.per_second, about.max_download),
            round_seconds=time.monotonic() - self._began,
            losses=self.losses.values,
            held_out=self.held_out.values,
        )
