"""A signal ends a program, whenever it comes."""

import signal
import sys
from typing import Any

import pytest

from peers.interruption import Interruption


class Unlucky:
    """A signal comes while this is finalised, where Python ignores exceptions."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_whose_exception_is_lost_stops_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would have ended at once is stopped as soon as there is a way to."""
    lost: list[Any] = []
    stopped = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    with Interruption() as interruption:
        Unlucky()
        assert [type(each.exc_value) for each in lost] == [SystemExit]
        interruption.on_stop(lambda: stopped.append(True))
        assert stopped == [True]
    with pytest.raises(SystemExit) as ended:
        interruption.exit_if_received()
    assert ended.value.code == 0


def test_one_signal_stops_once() -> None:
    """Where there is a way to stop, a signal takes it; the second one ends at once."""
    stopped = []
    with Interruption() as interruption:
        interruption.on_stop(lambda: stopped.append(True))
        assert stopped == []
        signal.raise_signal(signal.SIGINT)
        assert stopped == [True]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
