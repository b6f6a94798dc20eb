"""A signal ends a program, whenever it comes."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from peers.interruption import Interruption
from peers.lazy_group import LazyGroup


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


def test_a_terminal_that_is_closed_stops_once() -> None:
    """However often that is told; after it has been told to stop, nothing ends what it saves."""
    stopped = []
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with Interruption() as interruption:
            interruption.on_stop(lambda: stopped.append(True))
            for number in (signal.SIGHUP, signal.SIGHUP):
                signal.raise_signal(number)
            assert stopped == [True]
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    with pytest.raises(SystemExit) as ended:
        interruption.exit_if_received()
    assert ended.value.code == 0


def test_who_ignores_it_goes_on() -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption:
            signal.raise_signal(signal.SIGHUP)
        assert interruption.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_import_that_a_signal_breaks_is_an_interruption() -> None:
    """Whatever the library makes of the exception; without a signal an import that fails is a failure."""

    def load() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("numpy failed to import") from None

    with pytest.raises(SystemExit) as ended, Interruption():
        load()
    assert ended.value.code == 130
    with pytest.raises(ImportError), Interruption():
        raise ImportError("it is not installed")


def test_a_signal_while_a_command_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends as one while it runs."""
    (tmp_path / "slow_commands").mkdir()
    (tmp_path / "slow_commands" / "slow.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    monkeypatch.syspath_prepend(tmp_path)
    group = LazyGroup(package="slow_commands", commands={"slow": "Slow."})
    ended = CliRunner().invoke(group, ["slow"])
    assert (ended.exit_code, ended.stderr) == (130, "interrupted\n")
