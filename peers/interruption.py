"""Ctrl-C, SIGTERM and the end of the terminal: the first shuts down cleanly, the second at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

from dupt_swarm.command_line.exit_codes import INTERRUPTED


class Interruption:
    """In its ``with`` block, signals call what `on_stop` named; before that they end the program.

    Ctrl-C ends in exit code 130, SIGTERM in 0; and so does SIGHUP, of a terminal that is closed, unless it is
    ignored, as by nohup.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> Interruption:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.getsignal(number) for number in numbers}
        if self._before[signal.SIGHUP] == signal.SIG_IGN:
            del self._before[signal.SIGHUP]
        for number in self._before:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is not None and issubclass(kind, ImportError):
            self.exit_if_received()  # libraries in C make that of a signal's exception

    def on_stop(self, stop: Callable[[], None]) -> None:
        """From now on a signal calls ``stop`` once; so does one before, whose exception was lost.

        Python ignores exceptions in finalizers and around forks, and a signal may come there.
        """
        self._stop = stop
        if self.received is not None:
            stop()

    def exit_if_received(self) -> None:
        """End with the signal's exit code, if one came; call it after cleaning up."""
        if self.received == signal.SIGINT:
            sys.exit(INTERRUPTED)
        if self.received is not None:
            sys.exit(0)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self.received is not None:
            return  # the system and the shell both tell of it; and who closes a terminal is in no hurry
        again, self.received = self.received is not None, number
        if self._stop is None or again:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(0)
        self._stop()
