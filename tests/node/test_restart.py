"""The supervisor, with links to no process: what it makes of nodes that cannot be started again."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from dupt_swarm.errors import NodeError, UsageError
from dupt_swarm.manifest.layout import Layout
from dupt_swarm.node import node as supervisor
from dupt_swarm.node.commands import Command, EndRound, Join, Publish, WantOffered
from dupt_swarm.node.messages import Candidate, GroupFormed, Joined, OfferedName, RoundResult, StateName
from dupt_swarm.node.node import Node
from dupt_swarm.node.reasons import Failure
from dupt_swarm.node.record import RecordUpdate
from tests.support.tiny import settings
from tests.support.waiting import wait_until

JOINED = Joined("me", (), ("/ip4/127.0.0.1/tcp/4001",), b"manifest", b"{}", Layout(()), StateName(0, 0, ""))
ORDER = EndRound(StateName(0, 0, ""), 10, 64)
ENDED = RoundResult(StateName(1, 64, "a" * 64), None, 64, (), 1.0)
OTHER_PORT = "/ip4/127.0.0.1/tcp/4002"


class Slow(Future[Any]):
    """An answer that takes its time."""

    seconds = 0.0

    def result(self, timeout: float | None = None) -> Any:
        """It, or a `TimeoutError`, and nobody has to wait."""
        if timeout is not None and self.seconds > 0:
            self.seconds -= timeout
            raise TimeoutError
        return super().result(timeout)


class Line:
    """As a `Link`, to a node that answers as it is told here."""

    made: list[Line]
    refused: list[Exception]  # the next ones cannot even be made

    def __init__(self, *_: object) -> None:
        if self.refused:
            raise self.refused.pop(0)
        self.commands: list[Command[Any]] = []
        self.answers: list[Slow] = []
        self.ended, self.ill = False, ""
        self.made.append(self)

    def submit(self, command: Command[Any]) -> Future[Any]:
        """Joining succeeds at once."""
        self.commands.append(command)
        future = Slow()
        self.answers.append(future)
        if isinstance(command, Join):
            self.join(command, future)
        return future

    def join(self, _: Join, future: Slow) -> None:
        """The answer to it."""
        future.set_result(JOINED)

    def ailment(self) -> str:
        """What the test says."""
        return self.ill

    def kill(self) -> None:
        """Its end, as `close`."""
        self.ended = True

    close = kill


Answers = Callable[[Callable[[Line, Join, Slow], None]], None]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """One that has joined, under supervision."""
    monkeypatch.setattr(supervisor, "Link", Line)
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "RESTART_DELAYS", (0.0, 0.01))
    Line.made, Line.refused = [], []
    with Node() as node:
        node.join(settings())
        node.supervise()
        yield node


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Sets how nodes answer that are to join from now on."""
    return lambda join: monkeypatch.setattr(Line, "join", join)


def line_of(node: Node) -> object:
    """The one that it has now."""
    return node._link


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), RuntimeError("can't start new thread")]
)
def test_a_node_that_cannot_be_started_is_tried_again(node: Node, error: Exception) -> None:
    """As while the disk is full: a moment later it starts."""
    Line.refused = [error, error]
    Line.made[0].ill = "exited"
    wait_until(lambda: line_of(node) is not Line.made[0])
    assert (node.restarts, Line.made[0].ended, Line.made[1].ended) == ({"exited": 1}, True, False)


def test_a_node_that_takes_long_but_is_well(
    node: Node, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the signatures of months of rounds on a busy machine: nobody ends it."""
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 1.0)

    def join(_line: Line, _join: Join, future: Slow) -> None:
        future.seconds = 1800.0
        future.set_result(JOINED)

    answers(join)
    Line.made[0].ill = "exited"
    wait_until(lambda: line_of(node) is not Line.made[0])
    assert (len(Line.made), Line.made[1].ended) == (2, False)


def test_a_node_that_falls_silent_while_it_joins(node: Node, answers: Answers) -> None:
    """It is not waited for until the end: another is started at once."""

    def join(self: Line, _: Join, future: Slow) -> None:
        if len(Line.made) > 2:
            future.set_result(JOINED)
        else:
            self.ill = "silent"

    answers(join)
    Line.made[0].ill = "exited"
    wait_until(lambda: len(Line.made) == 3 and line_of(node) is Line.made[2])
    assert [line.ended for line in Line.made] == [True, True, False]


def test_a_port_that_another_program_has_now(node: Node, answers: Answers) -> None:
    """It was any free one: the node takes another, and keeps that from then on."""
    asked: list[tuple[str, ...]] = []

    def join(_line: Line, command: Join, future: Slow) -> None:
        asked.append(command.settings.host_maddrs)
        if command.settings.host_maddrs == JOINED.host_maddrs:
            future.set_exception(UsageError("cannot listen there", setting="host_maddrs"))
        else:
            future.set_result(replace(JOINED, host_maddrs=(OTHER_PORT,)))

    answers(join)
    Line.made[0].ill = "exited"
    wait_until(lambda: line_of(node) is Line.made[-1] and len(Line.made) == 3)
    assert asked == [JOINED.host_maddrs, settings().host_maddrs]
    Line.made[2].ill = "exited"
    wait_until(lambda: line_of(node) is Line.made[-1] and len(Line.made) == 4)
    assert asked[2:] == [(OTHER_PORT,)]


def test_the_end_of_a_peer_whose_node_joins(node: Node, answers: Answers) -> None:
    """Nobody waits for it."""
    answers(lambda *_: None)
    Line.made[0].ill = "exited"
    wait_until(lambda: len(Line.made) == 2)
    node.close()
    assert Line.made[1].ended


def test_what_is_published_while_a_node_is_replaced(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is told of it, whichever of the two it was sent to: a pause is published only once."""
    submit = Line.submit
    pausing = threading.Thread(target=node.publish, args=(RecordUpdate(state="paused"),))

    def told(line: Line, command: Command[Any]) -> Future[Any]:
        found = submit(line, command)
        if isinstance(command, Publish) and pausing.ident is None:
            pausing.start()
            pausing.join(0.2)
        return found

    node.publish(RecordUpdate(state="training", failed_rounds=2))
    node.publish(RecordUpdate(loss=3.0))
    monkeypatch.setattr(Line, "submit", told)
    Line.made[0].ill = "exited"
    wait_until(lambda: line_of(node) is Line.made[-1] and pausing.ident is not None)
    pausing.join()
    published = [each for each in Line.made[1].commands if isinstance(each, Publish)]
    record = reduce(RecordUpdate.__or__, (each.update for each in published))
    assert record.given == {"state": "paused", "failed_rounds": 2, "loss": 3.0}
    assert any(each.now for each in published)


def test_a_node_that_takes_the_place_of_another_wants_the_same(node: Node) -> None:
    """Files of the offer, the last ones only; and what the one before reached is there to be adopted."""
    files = [OfferedName("a" * 64, 10), OfferedName("b" * 64, 20)]
    for wanted in files:
        node.want_offered([wanted])
    Line.made[0].ill = "exited"
    wait_until(lambda: node.hearing.catching_up.newer == JOINED.state)
    wait_until(lambda: any(isinstance(each, Publish) for each in Line.made[1].commands))
    assert [each for each in Line.made[1].commands if isinstance(each, WantOffered)] == [
        WantOffered((files[1],))
    ]


def test_what_is_wanted_while_a_node_is_replaced(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is told of it last, and not of what was wanted before."""
    files = [OfferedName("a" * 64, 10), OfferedName("b" * 64, 20)]
    submit = Line.submit
    wanting = threading.Thread(target=node.want_offered, args=([files[1]],))

    def told(line: Line, command: Command[Any]) -> Future[Any]:
        if command == WantOffered((files[0],)):
            wanting.start()
            wanting.join(0.2)
        return submit(line, command)

    node.want_offered([files[0]])
    monkeypatch.setattr(Line, "submit", told)
    Line.made[0].ill = "exited"
    wait_until(lambda: line_of(node) is Line.made[-1] and wanting.ident is not None)
    wanting.join()
    wanted = [each for each in Line.made[1].commands if isinstance(each, WantOffered)]
    assert wanted == [WantOffered((files[0],)), WantOffered((files[1],))]


def test_what_was_heard_of_a_round_is_not_told_of_the_next(node: Node) -> None:
    """A round that is lost had the group that was heard of since it began; none: it was this peer's alone."""
    first = node.average(ORDER, 60)
    node.hearing.hear(GroupFormed(900, ("x",)))
    node.hearing.hear(Candidate("a" * 64, 3))
    Line.made[0].answers[-1].set_exception(NodeError("it has ended"))
    assert first.result(0) == RoundResult(None, Failure.NODE_LOST, 900, ("x",), 0.0)
    second = node.average(ORDER, 60)
    Line.made[0].answers[-1].set_exception(NodeError("it has ended"))
    assert second.result(0) == RoundResult(None, Failure.NODE_LOST, 64, (), 0.0)
    assert node.hearing.candidate is None
    node.hearing.hear(Candidate("b" * 64, 4))
    node.judge("b" * 64, accepted=True)
    assert node.hearing.candidate is None, "it is judged once"


def test_a_node_that_does_not_say_how_a_round_went(node: Node) -> None:
    """It is replaced; one that has said so in time is not, nor one that says why it cannot."""
    answered = node.average(ORDER, 0.05)
    Line.made[0].answers[-1].set_result(ENDED)
    time.sleep(0.2)
    assert (answered.result(0), Line.made[0].ended) == (ENDED, False)
    refused = node.average(ORDER, 0.05)
    Line.made[0].answers[-1].set_exception(UsageError("no"))
    with pytest.raises(UsageError, match="no"):
        refused.result(0)
    node.average(ORDER, 0.05)
    wait_until(lambda: Line.made[0].ended)


def test_an_answer_that_came_while_this_process_was_suspended(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over, and the answer still to be read: the round has ended, and its node is well."""
    suspended, goes_on = threading.Event(), threading.Event()

    def ailment(_: Line) -> str:
        suspended.set()
        goes_on.wait()
        return ""

    monkeypatch.setattr(Line, "ailment", ailment)
    ended = node.average(ORDER, 0.5)
    assert suspended.wait(60)
    time.sleep(0.7)
    goes_on.set()
    threading.Timer(0.1, Line.made[0].answers[-1].set_result, [ENDED]).start()
    assert (ended.result(60), Line.made[0].ended) == (ENDED, False)


def test_a_candidate_that_comes_while_another_is_judged(node: Node) -> None:
    """It is there to be judged next: its node waits for an answer about this one."""
    node.hearing.hear(Candidate("a" * 64, 3))
    node.hearing.hear(Candidate("b" * 64, 4))  # the node has waited long enough
    node.judge("a" * 64, accepted=True)
    assert node.hearing.candidate == Candidate("b" * 64, 4)
