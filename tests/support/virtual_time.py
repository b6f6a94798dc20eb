"""A clock that goes as fast as there is nothing to do: what takes minutes is tested in a moment."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class _Selector(selectors.SelectSelector):
    """Whoever would wait has waited."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nobody waits for anything that comes by itself"
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with its own time, in seconds; nothing in it may wait for the world outside."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    monotonic = time

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once, in no thread: while that worked, this clock would go on."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def run(self, scenario: Coroutine[Any, Any, None]) -> None:
        """All of it."""
        try:
            self.run_until_complete(scenario)
        finally:
            self.close()
