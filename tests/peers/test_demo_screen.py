"""What the demo says off a terminal."""

from dataclasses import replace

import pytest

from dupt_swarm.errors import NodeError
from dupt_swarm.node.view import Peer, View
from peers.screen import demo
from peers.screen.demo import DemoScreen
from tests.support.screen import oracle


def at_round(peer: Peer, number: int, loss: float | None) -> Peer:
    return replace(peer, record=peer.record.model_copy(update={"round": number, "loss": loss}))


def test_a_line_for_each_round_and_nothing_for_an_empty_swarm(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the oracles come, nor while nothing changes, nor when they have left."""
    monkeypatch.setattr(demo, "LOOK_SECONDS", 0.0)
    alice, bob = oracle("a", 100.0, name="alice"), oracle("b", 100.0, name="b\x1bob")
    views = [
        View(0.0, ()),
        View(0.0, (at_round(alice, 0, None), at_round(bob, 0, None))),
        *[View(0.0, (at_round(alice, 1, 5.0), at_round(bob, 1, 6.0)))] * 3,
        View(0.0, (at_round(alice, 2, 4.0),)),
        *[View(0.0, ())] * 5,
    ]
    screen = DemoScreen()
    screen.watch(lambda: views.pop(0), lambda: bool(views), screen.log)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert screen._first == {"a": 5.0, "b": 6.0}, "the loss at first stays"
    assert lines == ["round 1  loss: alice 5.000  b�ob 6.000", "round 2  loss: alice 4.000  b�ob 6.000"]


def test_an_observer_that_fails_ends_no_demo(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracles train on; what was seen before stays, and what is seen afterwards is shown."""
    monkeypatch.setattr(demo, "LOOK_SECONDS", 0.0)
    alice = oracle("a", 100.0, name="alice")
    outcomes: list[View | None] = [View(0.0, (at_round(alice, 1, 5.0),)), None, None]
    outcomes.append(View(0.0, (at_round(alice, 2, 4.0),)))

    def look() -> View:
        if (found := outcomes.pop(0)) is None:
            raise NodeError("the node did not answer ReadView")
        return found

    screen = DemoScreen()
    screen.watch(look, lambda: bool(outcomes), screen.log)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["round 1  loss: alice 5.000", "round 2  loss: alice 4.000"]
