"""Ctrl-C and SIGTERM: the first one shuts down cleanly, the second one at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType

from dupt_swarm.command_line.exit_codes import INTERRUPTED


class Interruption:
    """In its ``with`` block, signals call what `on_stop` named; before that they end the program.

    Ctrl-C ends in exit code 130, SIGTERM in 0.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> Interruption:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in self._before:
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
        if self.received == signal.SIGTERM:
            sys.exit(0)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        again, self.received = self.received is not None, number
        if self._stop is None or again:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(0)
        self._stop()
