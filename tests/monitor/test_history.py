from dataclasses import replace

import pytest

from dupt_swarm.manifest import Limits
from dupt_swarm.node.record import EvaluationRecord
from dupt_swarm.node.view import View
from dupt_swarm.replica.ledger import Ledger
from monitor.history import History, Point
from monitor.watcher import Watcher
from tests.support.invented import MANIFEST, NOW, peer


def test_point() -> None:
    """A point has the spread of the oracles' losses, the median held-out loss and the evaluator's."""
    evaluation = EvaluationRecord(dataset="news", bits_per_byte=1.5, loss_nats=4.5, round=3, time=NOW)
    view = View(
        NOW,
        (
            peer("a", loss=2.0, heldout_loss=3.0, tokens_per_second=100.0),
            peer("b", loss=4.0, heldout_loss=5.0, tokens_per_second=100.0),
            peer("c"),
            peer("referee", role="evaluator", evaluation=evaluation),
        ),
    )
    point = Point.of(view, 900, Limits())
    assert point.loss == pytest.approx(3.0)
    assert (point.time, point.round, point.tokens) == (NOW, 3, 900)
    assert (point.loss_min, point.loss_max) == (2.0, 4.0)
    assert (point.heldout_loss, point.evaluator_loss) == (4.0, 4.5)


def test_one_oracle_does_not_decide_what_is_held_out() -> None:
    """Whatever one of three claims of its held-out text, the figures stay between the others'."""
    honest = (
        peer("a", heldout_loss=3.0, heldout_accuracy=0.5, heldout_nsp_accuracy=0.5),
        peer("b", heldout_loss=5.0, heldout_accuracy=0.6, heldout_nsp_accuracy=0.6),
    )
    for loss, accuracy in ((1e6, 1.0), (0.0, 0.0)):
        liar = peer("liar", heldout_loss=loss, heldout_accuracy=accuracy, heldout_nsp_accuracy=accuracy)
        point = Point.of(View(NOW, (*honest, liar)), 900, Limits())
        assert point.heldout_loss in (3.0, 5.0)
        assert point.heldout_accuracy in (0.5, 0.6)
        assert point.heldout_nsp_accuracy in (0.5, 0.6)


def test_nobody_said_anything() -> None:
    """What no peer reports is None: there is no loss of zero."""
    point = Point.of(View(NOW, (peer("first", role="bootstrap"),)), 900, Limits())
    assert {point.loss, point.loss_min, point.loss_max, point.heldout_loss, point.evaluator_loss} == {None}
    assert Point.of(View(NOW, ()), 0, Limits()).round == 0


def test_bounded() -> None:
    """However long it runs, a history keeps few points, evenly spread from the first to the newest."""
    history = History(points_max=100)
    for number in range(12_345):
        history.add(Point(5.0 * number, number, number))
        assert history.points[-1].round == number
    assert 40 <= len(history.points) <= 100
    assert history.points[0].round == 0
    *gaps, last = [
        later.time - point.time for point, later in zip(history.points, history.points[1:], strict=False)
    ]
    assert max(*gaps, last) <= 2 * min(gaps)


def test_all_points_while_there_are_few() -> None:
    """Nothing is thrown away before the limit."""
    history = History(points_max=100)
    points = [Point(float(number), number, number) for number in range(100)]
    for point in points:
        history.add(point)
    assert list(history.points) == points
    history.add(replace(points[-1], round=500))
    assert history.points == (*points[:-1], replace(points[-1], round=500)), "one point for a moment"


def test_the_clock_is_set_back() -> None:
    """The curve goes on from there, without what lies in the future now."""
    history = History(points_max=100)
    for number in range(1000):
        history.add(Point(5.0 * number, number, number))
    for number in range(100):
        history.add(Point(2500.0 + 5 * number, 1000 + number, number))
        times = [point.time for point in history.points]
        assert times == sorted(set(times))
        assert history.points[-1].round == 1000 + number
    assert history.points[0].round == 0


def test_watcher_remembers() -> None:
    """Each refresh that finds peers adds a point; those that fail or find nobody add none."""
    views = [View(1.0, (peer("a"),)), View(2.0, (peer("a", swarm_tokens=1800),)), View(3.0, ())]

    class Node:
        def refresh(self) -> View:
            return views.pop(0)

        def ledger(self) -> Ledger:
            return Ledger(0, 0)

        def close(self) -> None:
            pass

    with Watcher(lambda _: (Node(), MANIFEST), interval=60) as watcher:
        for _ in range(3):
            watcher.refresh()
        assert [(point.time, point.tokens) for point in watcher.history.points] == [(1.0, 900), (2.0, 1800)]
