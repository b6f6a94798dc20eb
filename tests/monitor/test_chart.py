import math
import re
from dataclasses import replace

import pytest

from monitor.chart import HEIGHT, POINTS_MAX, WIDTH, Chart, draw, nice_step, thinned, y_axis
from monitor.history import Point


def falling(count: int, seconds: float = 5.0) -> list[Point]:
    """A loss that falls from 8 towards 3, a round every five points."""
    return [
        Point(
            time=seconds * number,
            round=number // 5,
            tokens=number // 5 * 1000,
            loss=3 + 5 * math.exp(-number / 100),
            loss_min=2.9 + 5 * math.exp(-number / 100),
            loss_max=3.1 + 5 * math.exp(-number / 100),
            heldout_loss=3.2 + 5 * math.exp(-number / 100),
        )
        for number in range(count)
    ]


def places(path: str) -> list[tuple[float, float]]:
    """The coordinates in the ``d`` of a path."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) ([^ML]+)", path)]


def test_nothing_known() -> None:
    """Without points, or without a loss in any, there is no curve, and a sentence says so."""
    assert draw([]) == Chart()
    assert draw([Point(0.0, 0, 0)]) == Chart()
    assert "No loss" in Chart().summary


def test_curve_spans_the_plot() -> None:
    """A falling loss runs from the left to the right edge and downwards, inside the plot."""
    chart = draw(falling(300))
    training, heldout = chart.lines
    assert [training.key, heldout.key] == ["training", "heldout"]
    for line in chart.lines:
        drawn = places(line.path)
        assert drawn[0][0] == pytest.approx(0, abs=WIDTH / POINTS_MAX * 2)
        assert drawn[-1][0] == WIDTH
        assert drawn[-1][1] == line.end
        assert all(0 <= y <= HEIGHT for _, y in drawn)
        assert drawn[0][1] < drawn[-1][1]  # pixels from the top
    assert len(places(chart.band)) == 2 * len(places(training.path))
    assert chart.summary == "Loss curve: training loss went from 8.000 to 3.251 nats in 25\xa0min."


def test_one_point() -> None:
    """The first point of a swarm is a dot at the right edge already."""
    chart = draw(falling(1))
    assert places(chart.lines[0].path)[0][0] == WIDTH
    assert chart.x_ticks[0].label == "now"


def test_a_gap_breaks_the_line() -> None:
    """Where the monitor saw nothing for a while, or nobody said anything, no line claims to know."""
    points = falling(300)
    assert draw(points).lines[0].path.count("M") == 1
    assert draw(points[:100] + points[160:]).lines[0].path.count("M") == 2
    silent = [Point(point.time, point.round, point.tokens) for point in points[100:160]]
    assert draw(points[:100] + silent + points[160:]).lines[0].path.count("M") == 2


def test_one_liar_does_not_flatten_the_curve() -> None:
    """A claimed loss of a million lies outside of the plot, whose axis still fits the others."""
    points = falling(100)
    points[50] = Point(time=250.0, round=10, tokens=10_000, loss=1e6, loss_min=4.0, loss_max=1e6)
    chart = draw(points)
    assert all(float(tick.label) < 10 for tick in chart.y_ticks)
    assert min(y for _, y in places(chart.lines[0].path)) > -HEIGHT
    assert chart.hover[50][1] is None
    assert draw(points[:51]).lines[0].end is None, "no dot at the edge for what lies outside"


def test_held_out_loss_alone() -> None:
    """Where no oracle reports a training loss the pointer finds the held-out one."""
    points = [replace(one, loss=None, loss_min=None, loss_max=None) for one in falling(100)]
    assert [y for _, y, _ in draw(points).hover] == [y for _, y in places(draw(points).lines[0].path)]


def test_a_task_that_is_learnt() -> None:
    """Where held-out examples have hardly any loss left, that of training, far greater, is in the plot."""
    points = [replace(one, heldout_loss=0.001, evaluator_loss=0.001) for one in falling(100)]
    chart = draw(points)
    assert [line.end is not None for line in chart.lines] == [True, True, True]
    assert all(0 <= y <= HEIGHT for _, y in places(chart.lines[0].path))


def test_few_points_are_drawn() -> None:
    """A long history costs the page no more than a short one, and keeps its newest point."""
    points = falling(2000)
    few = thinned(points, POINTS_MAX)
    assert POINTS_MAX / 2 <= len(few) <= POINTS_MAX
    assert few[-1] is points[-1]
    assert thinned(points[:10], POINTS_MAX) == points[:10]


def test_over_tokens() -> None:
    """Over tokens every round is one point, and the ticks are amounts of tokens."""
    chart = draw(falling(300), by_tokens=True)
    xs = [x for x, _ in places(chart.lines[0].path)]
    assert xs == sorted(set(xs))
    assert len(xs) == 60
    assert [tick.label for tick in chart.x_ticks] == ["0", "20.0\xa0k", "40.0\xa0k"]


@pytest.mark.parametrize("seconds", [0.5, 5.0, 60.0, 3600.0, 86400.0])
@pytest.mark.parametrize("count", [1, 2, 50, 300])
def test_time_ticks(seconds: float, count: int) -> None:
    """However long the history is, few ticks, different from one another, count back from now."""
    ticks = draw(falling(count, seconds)).x_ticks
    assert 1 <= len(ticks) <= 7
    assert ticks[0] == ticks[0].__class__(100.0, "now", "end")
    assert len({tick.label for tick in ticks}) == len(ticks)
    assert all(0 <= tick.at <= 100 for tick in ticks)


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [3.0, 3.001], [2.5, 11.0], [1e5, 9e5]])
def test_loss_ticks(values: list[float]) -> None:
    """The axis holds the values, and its few labels are different and exact."""
    low, high, ticks = y_axis(values)
    assert 0 <= low <= min(values) <= max(values) <= high
    assert 1 <= len(ticks) <= 8
    assert len({label for _, label in ticks}) == len(ticks)
    assert all(
        float(label) == pytest.approx(value) and low - 1e-9 <= value <= high + 1e-9 for value, label in ticks
    )


def test_nice_step() -> None:
    """Steps are 1, 2 or 5 times a power of ten."""
    assert [nice_step(least) for least in (0.3, 1.0, 1.1, 4, 6, 70)] == [0.5, 1, 2, 5, 10, 100]
