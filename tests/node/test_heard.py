from typing import Any

import pytest

from dupt_swarm.node.heard import Hearing
from dupt_swarm.node.messages import CatchingUp, Downloading, FetchFailed, GroupFormed, LogLine, Traffic
from dupt_swarm.node.view import View

EVENTS: dict[str, Any] = {
    "view": View(7.0, ()),
    "catching_up": CatchingUp(fetching=True, newer=None),
    "group": GroupFormed(tokens=5, mates=("a",)),
    "traffic": Traffic(received=1, sent=2),
}
DOWNLOADING = Downloading(1, 2, 3.0, 4)


@pytest.mark.parametrize("name", EVENTS)
def test_each_event_replaces_the_last_of_its_kind(name: str) -> None:
    """An event changes the one thing that it is about, and nothing else."""
    hearing = Hearing(lambda _: None)
    before = {each: getattr(hearing, each) for each in EVENTS}
    hearing.hear(EVENTS[name])
    assert {each: getattr(hearing, each) for each in EVENTS} == before | {name: EVENTS[name]}


@pytest.mark.parametrize("event", [FetchFailed(), LogLine("joined"), DOWNLOADING, None])
def test_other_events_change_nothing(event: object) -> None:
    """What tells of no state is only passed on."""
    hearing = Hearing(lambda _: None)
    before = {each: getattr(hearing, each) for each in EVENTS}
    hearing.hear(event)
    assert {each: getattr(hearing, each) for each in EVENTS} == before


def test_a_screen_that_fails_does_not_end_the_listener(caplog) -> None:
    """The event is passed on even if showing the download raises; the log says what raised."""

    def fail(_: Downloading) -> None:
        raise ZeroDivisionError("no terminal")

    events: list[object] = []
    hearing = Hearing(fail)
    hearing.listeners.append(events.append)
    hearing.hear(DOWNLOADING)
    assert events == [DOWNLOADING]
    assert "no terminal" in caplog.text
