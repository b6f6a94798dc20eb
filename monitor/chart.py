"""The loss curve as numbers for an SVG: paths, ticks and labels; nothing here knows HTML.

The plot is 1000 units wide, stretched to whatever width there is, and `HEIGHT` pixels high. Text and
dots lie outside the stretched part, at percentages, so that they are as large on a phone as on a desk.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from monitor import formats
from monitor.history import Point

WIDTH, HEIGHT = 1000.0, 240.0
OUTSIDE = 10.0  # units above or below the plot, where outliers end
POINTS_MAX = 150  # of the drawn curve: more cannot be seen, and the page should stay small
OUTLIER_RATIO = 8.0  # × a median: anybody may claim a loss of a million
SPAN_SECONDS_MIN = 60.0
GAP_POINTS, GAP_SECONDS = 4, 30.0  # the line is broken where the monitor saw nothing for so long
TIME_STEPS = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)

Place = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    """A label on an axis.

    Attributes:
        at: percent of the width from the left, or pixels from the top.
        label: what stands there.
        anchor: how the label lies to that place: ``middle`` or ``end``.
    """

    at: float
    label: str
    anchor: str = "middle"


@dataclass(frozen=True)
class Line:
    """One curve of the chart.

    Attributes:
        key: which, also the name of its style: ``training``, ``heldout`` or ``evaluator``.
        title: what the legend calls it.
        path: the ``d`` of an SVG path.
        value: newest loss, nats.
        end: pixels from the top where the newest point lies; None: it is not at the right edge.
    """

    key: str
    title: str
    path: str
    value: float | None
    end: float | None


@dataclass(frozen=True)
class Chart:
    """Everything that the template draws.

    Attributes:
        lines: curves that have at least one point.
        band: the ``d`` of the spread between the oracles.
        x_ticks: labels below.
        y_ticks: labels at the left, with a line each.
        summary: the curve in words, for those who cannot see it.
        hover: per point its x (percent), y (pixels; None: nothing to mark) and the text to show there.
    """

    lines: tuple[Line, ...] = ()
    band: str = ""
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    summary: str = "No loss has been reported yet."
    hover: list[tuple[float, float | None, str]] = field(default_factory=list)


SERIES: tuple[tuple[str, str, Callable[[Point], float | None]], ...] = (
    ("training", "training", lambda point: point.loss),
    ("heldout", "held-out", lambda point: point.heldout_loss),
    ("evaluator", "evaluator", lambda point: point.evaluator_loss),
)


@dataclass(frozen=True)
class _Plot:
    """Points with their x in the plot's units, and the range of losses that the height stands for."""

    points: Sequence[Point]
    xs: Sequence[float]
    low: float
    high: float

    def y(self, value: float) -> float:
        """Pixels from the top; what lies outside of the plot is put a little way outside."""
        y = HEIGHT * (self.high - value) / (self.high - self.low)
        return round(min(max(y, -OUTSIDE), HEIGHT + OUTSIDE), 1)

    def mark(self, value: float | None) -> float | None:
        """Like `y`, but None for what is unknown or outside."""
        return None if value is None or not self.low <= value <= self.high else self.y(value)

    def runs(self, value_of: Callable[[Point], float | None]) -> list[list[Place]]:
        """The places of one curve, broken where something is missing."""
        values = [value_of(point) for point in self.points]
        places = [None if v is None else (x, self.y(v)) for x, v in zip(self.xs, values, strict=True)]
        return unbroken(self.points, places)


def draw(history: Sequence[Point], by_tokens: bool = False) -> Chart:
    """The chart of ``history`` (oldest first) over time, or over the swarm's tokens."""
    if by_tokens:
        history = list({point.tokens: point for point in history}.values())  # the last of each round
    points = thinned(history, POINTS_MAX)
    known = [value for point in points for _, _, value_of in SERIES if (value := value_of(point)) is not None]
    if not known:
        return Chart()
    low, high, y_ticks = y_axis(known, [point.loss_min for point in points if point.loss_min is not None])
    place_x, x_ticks = (tokens_axis if by_tokens else time_axis)(points)
    plot = _Plot(points, [place_x(point) for point in points], low, high)
    newest = points[-1]
    lines = [
        Line(key, title, path(plot.runs(value_of)), value_of(newest), plot.mark(value_of(newest)))
        for key, title, value_of in SERIES
    ]
    least, greatest = plot.runs(lambda point: point.loss_min), plot.runs(lambda point: point.loss_max)
    areas = [[*above, *reversed(below)] for below, above in zip(least, greatest, strict=True)]
    return Chart(
        lines=tuple(line for line in lines if line.path),
        band=path(areas),
        x_ticks=tuple(x_ticks),
        y_ticks=tuple(Tick(plot.y(value), label) for value, label in y_ticks),
        summary=in_words(history),
        hover=[
            (
                round(x / WIDTH * 100, 1),
                plot.mark(point.heldout_loss if point.loss is None else point.loss),
                _label(point, newest.time),
            )
            for x, point in zip(plot.xs, points, strict=True)
        ],
    )


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most ``most`` of the points, evenly taken, the newest among them."""
    stride = math.ceil(len(points) / most)
    return list(points[::-1][:: max(stride, 1)])[::-1]


def y_axis(
    values: Sequence[float], least: Sequence[float] = ()
) -> tuple[float, float, list[tuple[float, str]]]:
    """Least and greatest value of the axis, and its ticks with their labels; outliers lie outside.

    What all oracles report at ``least``, and no single one can raise, is no outlier: a language model's loss
    beside a task's, which is all that held-out examples measure, may be a thousand times as much.
    """
    median = max(statistics.median(found) for found in (values, least) if found)
    usual = [value for value in values if value <= OUTLIER_RATIO * median]
    low, high = min(usual), max(usual)
    margin = max((high - low) * 0.08, abs(high) * 0.01, 1e-3)
    low, high = max(0.0, low - margin), high + margin
    step = nice_step((high - low) / 6)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.ceil(low / step), math.floor(high / step)
    return low, high, [(number * step, f"{number * step:.{decimals}f}") for number in range(first, last + 1)]


def nice_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, not less than ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def time_axis(points: Sequence[Point]) -> tuple[Callable[[Point], float], list[Tick]]:
    """Where a point lies over time, and ticks that count back from now: the same in all time zones."""
    now = points[-1].time
    span = max(now - points[0].time, SPAN_SECONDS_MIN)
    step = next((step for step in TIME_STEPS if step * 5 >= span), 0) or 86400 * nice_step(span / 86400 / 5)
    size, unit = next((size, unit) for size, unit in formats.TIME_UNITS if step >= size)
    ticks = [
        _x_tick(
            100 * (1 - number * step / span),
            f"−{number * step / size:g}\N{NO-BREAK SPACE}{unit}" if number else "now",
        )
        for number in range(int(span / step) + 1)
    ]
    return lambda point: round(WIDTH * (1 - (now - point.time) / span), 1), ticks


def tokens_axis(points: Sequence[Point]) -> tuple[Callable[[Point], float], list[Tick]]:
    """Where a point lies over tokens, and its ticks."""
    first, last = points[0].tokens, points[-1].tokens
    span = max(last - first, 1)
    step = max(1, int(nice_step(span / 5)))
    numbers = range(math.ceil(first / step), last // step + 1)
    ticks = [
        _x_tick(100 * (number * step - first) / span, formats.short(number * step)) for number in numbers
    ]
    return lambda point: round(WIDTH * (point.tokens - first) / span, 1), ticks


def _x_tick(percent: float, label: str) -> Tick:
    # At the right edge a label must not stick out; at the left there is room, below the other axis.
    return Tick(round(percent, 2), label, "end" if percent > 95 else "middle")


def unbroken(points: Sequence[Point], places: Sequence[Place | None]) -> list[list[Place]]:
    """Runs of places that belong to one line: without gaps in time or in what is known."""
    gaps = [later.time - point.time for point, later in pairwise(points)]
    longest = max(GAP_SECONDS, GAP_POINTS * statistics.median(gaps)) if gaps else math.inf
    runs: list[list[Place]] = [[]]
    for index, place in enumerate(places):
        if place is None or (index and gaps[index - 1] > longest):
            runs.append([])
        if place is not None:
            runs[-1].append(place)
    return [run for run in runs if run]


def path(runs: Iterable[Sequence[Place]]) -> str:
    """The ``d`` of lines through these places; a single one becomes a dot, given a round line cap."""
    whole = (run if len(run) > 1 else [*run, *run] for run in runs)
    return "".join("M" + "L".join(f"{x:g} {y:g}" for x, y in run) for run in whole)


def _label(point: Point, now: float) -> str:
    losses = [
        f"{title} {formats.loss(value)}"
        for _, title, value_of in SERIES
        if (value := value_of(point)) is not None
    ]
    if point.heldout_accuracy is not None:
        losses.append(f"accuracy {formats.percent(point.heldout_accuracy)}")
    when = f"{formats.duration(now - point.time)} ago" if point.time < now else "now"
    return "\n".join([*losses, f"round {point.round:,}, {when}"])


def in_words(points: Sequence[Point]) -> str:
    """One sentence about the training loss, or else the held-out loss, from its first to its newest value."""
    for _, title, value_of in SERIES:
        known = [(point, value) for point in points if (value := value_of(point)) is not None]
        if known:
            (start, first), (end, last) = known[0], known[-1]
            return (
                f"Loss curve: {title} loss went from {formats.loss(first)} to {formats.loss(last)} "
                f"nats in {formats.duration(end.time - start.time)}."
            )
    return Chart.summary
